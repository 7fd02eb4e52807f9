// JSON of this server. A newer request of the same caller ends the older one.

export class Loader {
  #controller = null;

  async get(path, query = {}) {
    this.#controller?.abort();
    const controller = this.#controller = new AbortController();
    const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== ""));
    const response = await fetch(search.size ? `${path}?${search}` : path, { signal: controller.signal, headers: { accept: "application/json" } });
    const data = await response.json();
    if (!response.ok) throw new Error(data.error ?? `the server answered ${response.status}`);
    return data;
  }

  stop() {
    this.#controller?.abort();
  }
}

export const isStopped = (error) => error.name === "AbortError";
