// Search in pages that are read from the file system, where browsers start no
// Worker: its script runs in a hidden frame.  The theme would fetch such a file
// from the network; its search asks whether there is an IFrameWorker.
if (location.protocol === "file:")
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.worker = this;
      document.body.appendChild(frame);
      this.inner = frame.contentWindow;
      this.loaded = new Promise((done) => (frame.onload = done));
      frame.contentDocument.open();
      frame.contentDocument.write(`<body><script>
        postMessage = (data) => frameElement.worker.dispatchEvent(
          new parent.MessageEvent("message", {data}));
        importScripts = async (...urls) => {
          for (const url of urls)
            await new Promise((done, fail) => {
              const script = document.createElement("script");
              Object.assign(script, {src: url, onload: done, onerror: fail});
              document.body.appendChild(script);
            });
        };
        </script><script src="${url}"></script>`);
      frame.contentDocument.close();
    }
    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(
        new this.inner.MessageEvent("message", {data})));
    }
  };
