/** Reproducible random numbers: the same seed gives the same choices (mulberry32, Tommy Ettinger, public domain). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** From 0 to below 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  /** An integer from `least` to `most`, inclusive. */
  whole(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  chance(share: number): boolean {
    return this.next() < share;
  }

  pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.next() * list.length)] as T;
  }

  /** One of `list`, chosen with a probability proportional to its weight. */
  pickByWeight<T>(list: readonly T[], weight: (one: T) => number): T {
    let place = this.next() * list.reduce((sum, one) => sum + weight(one), 0);
    for (const one of list) {
      place -= weight(one);
      if (place < 0) return one;
    }
    return list.at(-1) as T;
  }

  /** `list` in random order. */
  shuffled<T>(list: readonly T[]): T[] {
    return list
      .map((one) => ({ one, place: this.next() }))
      .sort((a, b) => a.place - b.place)
      .map(({ one }) => one);
  }

  /** An independent generator for a part of a test: its choices do not depend on what other parts draw. */
  branch(): Random {
    return new Random(this.whole(0, 0xffffffff));
  }
}
