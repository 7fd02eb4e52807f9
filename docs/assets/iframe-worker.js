// Search runs in a worker. Browsers refuse workers in pages that are opened as files, so there an iframe takes its place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      const insert = () => {
        document.body.append(frame)
        this.inside = frame.contentWindow
        this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
        const script = this.inside.document.createElement("script")
        script.src = url
        script.onload = () => {
          this.ready = true
          this.waiting.splice(0).forEach(data => this.postMessage(data))
        }
        this.inside.document.body.append(script)
      }
      document.body ? insert() : addEventListener("DOMContentLoaded", insert)
    }

    postMessage(data) {
      if (this.ready) this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }))
      else this.waiting.push(data)
    }
  }
}
