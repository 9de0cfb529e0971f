// Browsers start no workers for pages that are read from a disk, and the search is one: there, its
// script runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.postMessage = (data) => setTimeout(answer, 0, data);
      const script = inside.document.createElement("script");
      this.ready = new Promise((resolve) => { script.onload = () => resolve(inside); });
      script.src = new URL(url, document.baseURI).href;
      inside.document.body.append(script);
    }
    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
