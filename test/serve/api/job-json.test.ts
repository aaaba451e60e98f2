import { expect, it } from 'vitest';
import { jobJson } from '../../../src/serve/api/job-json.js';

it('a job that expires now has a ttl of 1 s: with 0 it would be for ever', () => {
  const ttlOf = (expires: number | undefined) => {
    const job = { id: 'one', payload: Buffer.from('x'), due: 1_000, expires, attributes: {} };
    return (JSON.parse(jobJson(job, { ns: 'ns', queue: 'q', now: 5_000, left: 0 })) as { ttl: number }).ttl;
  };
  expect([undefined, 4_999, 5_000, 5_001, 6_000, 6_001].map(ttlOf)).toEqual([0, 1, 1, 1, 1, 2]);
});
