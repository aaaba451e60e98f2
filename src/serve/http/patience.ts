/** How long a listener waits for its clients, ms. */
export interface Patience {
  /** For the headers of a request. */
  readonly headersMs: number;
  /** For a whole request. */
  readonly requestMs: number;
  /** For the next request of a connection. */
  readonly idleMs: number;
  /** For a client to take an answer. */
  readonly answerMs: number;
  /** For a client to read why it is cut off. */
  readonly lingerMs: number;
  /** How often it looks for clients that are late with a request. */
  readonly checkMs: number;
}

/** What the documents promise. */
export const PATIENCE: Patience = {
  headersMs: 10_000,
  requestMs: 30_000,
  // Long: clients do not repeat a PUT that meets a closed connection.
  idleMs: 650_000,
  answerMs: 60_000,
  lingerMs: 2_000,
  checkMs: 2_000,
};
