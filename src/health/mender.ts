import { type DelayqError, isDelayqError } from '../model/errors.js';
import { bad, type Finding } from './finding.js';

/** Repairs what it may. Stops at the first refusal of Redis: a replica, missing permissions, or a full server. */
export class Mender {
  readonly #allowed: boolean;
  #refusal: DelayqError | undefined;

  constructor(allowed: boolean) {
    this.#allowed = allowed;
  }

  /** Returns what `repair` returns, or undefined if nothing may be repaired. */
  async try<T>(repair: () => Promise<T>): Promise<T | undefined> {
    if (!this.#allowed || this.#refusal) return undefined;
    try {
      return await repair();
    } catch (error) {
      if (!isDelayqError(error, 'temporary', 'refused')) throw error;
      this.#refusal = error;
      return undefined;
    }
  }

  /** Repairs a finding. Returns it, or, after a repair, that `did` was done to `count` things. */
  async mend(found: Finding, count: number, did: string, repair: () => Promise<unknown>): Promise<Finding[]> {
    const finding = { ...found, mendable: true };
    const isMended = await this.try(() => repair().then(() => true));
    return [isMended ? mendedFinding(finding, count, did) : finding];
  }

  get refusal(): Finding[] {
    if (!this.#refusal) return [];
    const { why: cause, next } = this.#refusal;
    const why = 'Redis refuses writes, so the faults remain';
    return [bad('warn', 'not-mended', `cannot be repaired: ${cause}`, why, next)];
  }
}

/** The finding once all of it was repaired; `did` says how. */
export function mendedFinding(finding: Finding, mended: number, did: string): Finding {
  return { ...finding, level: 'ok', what: did, why: undefined, next: undefined, mended };
}
