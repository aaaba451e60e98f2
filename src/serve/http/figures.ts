import type { Exchange } from './exchange.js';

/** The upper bounds of the buckets of durations, s. Long polls take minutes. */
export const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600];

/** How long requests of a route took. */
export interface Durations {
  /** How many were in each bucket but in no lower one; the last counts those above all bounds. */
  readonly counts: number[];
  /** s */
  sum: number;
}

/** What the server counts about itself, for metrics. */
export class Figures {
  /** Requests that wait for a job, or for its end. */
  waiting = 0;
  /** Jobs that went back, because the client that had asked for them had gone. */
  released = 0;
  /** By method, route and status, with spaces between. */
  readonly requests = new Map<string, number>();
  /** By method and route. */
  readonly durations = new Map<string, Durations>();

  /** Counts a request that has ended. */
  add(exchange: Exchange, delivered: boolean): void {
    // Where there is no route, clients could make up any number of methods.
    const route = exchange.route === '-' ? '- -' : `${exchange.method} ${exchange.route}`;
    const key = `${route} ${delivered ? exchange.status : 'gone'}`;
    this.requests.set(key, (this.requests.get(key) ?? 0) + 1);
    let durations = this.durations.get(route);
    if (!durations) {
      durations = { counts: new Array<number>(BUCKETS.length + 1).fill(0), sum: 0 };
      this.durations.set(route, durations);
    }
    const seconds = (performance.now() - exchange.since) / 1000;
    let bucket = 0;
    while (seconds > (BUCKETS[bucket] ?? Number.POSITIVE_INFINITY)) bucket += 1;
    durations.counts[bucket] = (durations.counts[bucket] as number) + 1;
    durations.sum += seconds;
  }
}
