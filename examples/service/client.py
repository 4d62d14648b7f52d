"""A client of the decision service, with the standard library alone; to be copied."""

import http.client
import json
import time
import urllib.parse
import uuid


class Client:
    """Asks a loop for decisions and sends it rewards; repeats what got no response."""

    def __init__(self, address="http://127.0.0.1:8080", loop="offers", key=None, attempts=8):
        self.address, self.loop, self.attempts = urllib.parse.urlsplit(address), loop, attempts
        self.headers = {"content-type": "application/json"}
        if key:
            self.headers["authorization"] = f"Bearer {key}"
        self.connection = None

    def decide(self, context, actions=None, id=None, **options):
        """Return the decision for a row: its "id", "action" and "probability"."""
        # one id for all attempts, so that they are one decision
        body = {"id": id or uuid.uuid4().hex, "context": context, "actions": actions, **options}
        return self.call("POST", "/decisions", body)

    def reward(self, id, reward):
        """Say what a decision earned; it counts once, however often it is sent."""
        return self.call("POST", f"/decisions/{urllib.parse.quote(id)}/reward", {"reward": reward})

    def rewards(self, pairs):
        """Say what many decisions earned: pairs of an id and a number."""
        return self.call("POST", "/rewards", {"rewards": [{"id": id, "reward": reward} for id, reward in pairs]})

    def state(self):
        """Return the state of the loop."""
        return self.call("GET", "")

    def call(self, method, path, body=None):
        """Return what the service returns; raise an error if it refuses."""
        payload = None if body is None else json.dumps(body).encode()
        for attempt in range(self.attempts):
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPConnection(self.address.netloc, timeout=30)
                self.connection.request(method, f"/v1/loops/{self.loop}{path}", payload, self.headers)
                response = self.connection.getresponse()
                content = json.loads(response.read())
                if response.status < 400:
                    return content
                if response.status not in (429, 500, 503) or attempt == self.attempts - 1:
                    error = content["error"]
                    raise ValueError(f"{response.status} {error['code']}: {error['message']}")
            except (OSError, http.client.HTTPException):
                self.connection = None
                if attempt == self.attempts - 1:
                    raise
            time.sleep(0.1 * 2**attempt)
        return None
