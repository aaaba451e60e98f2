/** hash: SHA-256 of a token → its record. The braces of a queue's keys are missing: no queue has this key. */
export const tokensKey = (prefix: string): string => `${prefix}:http:tokens`;

/** hash: SHA-256 of a token and the side of a limit → how much is used of it, and until when that counts, ms. */
export const usedKey = (prefix: string): string => `${prefix}:http:used`;
