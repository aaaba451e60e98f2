/** Work that must end before a connection is closed. */
export class UnderWay {
  readonly #all = new Set<Promise<unknown>>();

  /** Errors are for whoever else waits for `work`. */
  add(work: Promise<unknown>): void {
    const tracked: Promise<unknown> = work.catch(() => {}).then(() => this.#all.delete(tracked));
    this.#all.add(tracked);
  }

  /** Resolves when all has ended, also what it has begun meanwhile. */
  async ended(): Promise<void> {
    while (this.#all.size > 0) await Promise.all(this.#all);
  }
}
