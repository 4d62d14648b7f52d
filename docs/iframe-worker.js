// Browsers refuse workers to pages that are opened from a folder. The search runs in a
// hidden frame there: what the page posts arrives in the frame as a message, and back.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "Search";
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((resolve, reject) => {
        const script = frame.contentDocument.createElement("script");
        script.onload = resolve;
        script.onerror = reject;
        script.src = String(address);
        frame.contentDocument.body.appendChild(script);
      });
    }

    postMessage(data) {
      this.ready.then(() =>
        this.inside.dispatchEvent(new MessageEvent("message", { data })),
      );
    }
  };
}
