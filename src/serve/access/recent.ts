/** A map of bounded size: new entries replace the oldest. */
export class Recent<K, V> {
  readonly #max: number;
  readonly #map = new Map<K, V>();

  constructor(max: number) {
    this.#max = max;
  }

  get(key: K): V | undefined {
    return this.#map.get(key);
  }

  set(key: K, value: V): void {
    this.#map.delete(key);
    this.#map.set(key, value);
    if (this.#map.size <= this.#max) return;
    for (const oldest of this.#map.keys()) return void this.#map.delete(oldest);
  }

  delete(key: K): void {
    this.#map.delete(key);
  }
}
