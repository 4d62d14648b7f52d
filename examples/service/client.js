// A client of the decision service for browsers and Node 18 or later; to be copied.

export class Client {
  constructor(address = "http://127.0.0.1:8080", loop = "offers", key = null) {
    Object.assign(this, { address, loop, attempts: 8 });
    this.headers = { "content-type": "application/json" };
    if (key) this.headers.authorization = `Bearer ${key}`;
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
    const rewards = pairs.map(([id, reward]) => ({ id, reward }));
    return this.call("POST", "/rewards", { rewards });
  }

  // The state of the loop.
  state() {
    return this.call("GET", "");
  }

  async call(method, path, body) {
    const address = `${this.address}/v1/loops/${this.loop}${path}`;
    const options = { method, headers: this.headers, body: JSON.stringify(body) };
    for (let attempt = 0; ; attempt += 1) {
      const last = attempt === this.attempts - 1;
      try {
        const response = await fetch(address, options);
        const content = await response.json();
        if (response.ok) return content;
        const { code, message } = content.error;
        const refusal = new Error(`${response.status} ${code}: ${message}`);
        refusal.final = last || ![429, 500, 503].includes(response.status);
        throw refusal;
      } catch (error) {
        if (error.final ?? last) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** attempt));
    }
  }
}
