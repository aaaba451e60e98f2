/** The period in which only the first reports are made one by one, ms. */
const SPAN_MS = 60_000;

/**
 * Makes reports, a line each. Of a flood it makes only the first ones, and says how many more there were, once a minute
 * and at the end: a flood must not fill a log or a mail.
 */
export class Flood {
  readonly #say: (text: string) => void;
  readonly #max: number;
  readonly #more: (n: number, kind: string) => string;
  #reported = 0;
  /** How many were not reported, by kind. */
  readonly #others = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  /** `max`: how many are reported one by one; `more`: says how many others of a kind there were. */
  constructor(say: (text: string) => void, max: number, more: (n: number, kind: string) => string) {
    this.#say = say;
    this.#max = max;
    this.#more = more;
  }

  add(text: string, kind = ''): void {
    this.#timer ??= setTimeout(() => this.flush(), SPAN_MS).unref();
    if (++this.#reported <= this.#max) this.#say(text);
    else this.#others.set(kind, (this.#others.get(kind) ?? 0) + 1);
  }

  /** Says how many more there were than were reported one by one. Call it at the end. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#reported = 0;
    for (const [kind, n] of this.#others) this.#say(this.#more(n, kind));
    this.#others.clear();
  }
}
