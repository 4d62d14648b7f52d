// A client of the decision service for browsers and Node 18 or later, without packages. Copy it into your code.

export class Client {
  constructor({ address = "http://127.0.0.1:8080", loop = "offers", key = null, attempts = 5 } = {}) {
    Object.assign(this, { address, loop, attempts });
    this.headers = { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
  }

  // The decision for a row: its "id", "action" and "probability".
  decide(context, { actions = null, id = crypto.randomUUID(), ...options } = {}) {
    // one id for all attempts, so that they are one decision
    return this.call("POST", "/decisions", { id, context, actions, ...options });
  }

  // What a decision earned; it counts once, however often it is sent.
  reward(id, reward) {
    return this.call("POST", `/decisions/${encodeURIComponent(id)}/reward`, { reward });
  }

  // What many decisions earned: pairs of an id and a number.
  rewards(pairs) {
    return this.call("POST", "/rewards", { rewards: pairs.map(([id, reward]) => ({ id, reward })) });
  }

  // The state of the loop.
  state() {
    return this.call("GET", "");
  }

  async call(method, path, body) {
    const options = { method, headers: this.headers, body: body && JSON.stringify(body) };
    for (let attempt = 0; ; attempt += 1) {
      const last = attempt === this.attempts - 1;
      try {
        const response = await fetch(`${this.address}/v1/loops/${this.loop}${path}`, options);
        const content = await response.json();
        if (response.ok) return content;
        const { code, message } = content.error;
        const refusal = Object.assign(new Error(`${response.status} ${code}: ${message}`), { status: response.status });
        if (last || ![429, 500, 503].includes(response.status)) throw refusal;
      } catch (error) {
        if (last || error.status) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** attempt));
    }
  }
}
