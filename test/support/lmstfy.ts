import { expect } from 'vitest';

/** A job as lmstfy's clients have it. */
export interface ClientJob {
  readonly namespace: string;
  readonly queue: string;
  readonly id: string;
  readonly data: Buffer;
  readonly ttl: number;
  readonly elapsedMs: number;
  readonly remainTries: number;
  readonly attributes: Readonly<Record<string, string>> | null;
}

/** Base64 as Go and Java take it: standard alphabet, padded, in one line. */
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

const integer = (value: unknown) => Number.isSafeInteger(value);
const text = (value: unknown) => typeof value === 'string';

/** Decodes a job as the strictest client does: Go's and Gson's integers, Java's base64. Fails where one of them would. */
export function jobOf(json: unknown): ClientJob {
  const { namespace, queue, job_id, data, ttl, elapsed_ms, remain_tries, attributes } = (json ?? {}) as Record<
    string,
    unknown
  >;
  const isText = [namespace, queue, job_id, data].every(text) && BASE64.test(data as string);
  const isCounted = [ttl, elapsed_ms, remain_tries].every(integer);
  const isNamed = typeof attributes === 'object' && Object.values(attributes ?? {}).every(text);
  expect({ isText, isCounted, isNamed, json }).toMatchObject({ isText: true, isCounted: true, isNamed: true });
  return {
    namespace: namespace as string,
    queue: queue as string,
    id: job_id as string,
    data: Buffer.from(data as string, 'base64'),
    ttl: ttl as number,
    elapsedMs: elapsed_ms as number,
    remainTries: remain_tries as number,
    attributes: attributes as ClientJob['attributes'],
  };
}

/** The field `job_id` of a publish's answer, which every client needs as text. */
export function idOf(json: unknown): string {
  expect(json).toMatchObject({ job_id: expect.stringMatching(/^[!-~]+$/) });
  return (json as { job_id: string }).job_id;
}

/** What is left of a time to live, s: a busy machine may make it less than at first. */
export const nearly = (seconds: number) =>
  expect.toSatisfy(
    (left: unknown) => Number.isInteger(left) && Number(left) <= seconds && Number(left) > seconds - 120,
  );
