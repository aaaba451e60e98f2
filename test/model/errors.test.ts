import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { DelayqError, partly, unknownOutcome } from '../../src/model/errors.js';

describe('the message of an error', () => {
  it.each([
    [{ why: 'it is empty', next: 'write one' }, 'no payload: it is empty; write one'],
    [{ why: 'it is empty' }, 'no payload: it is empty'],
    [{ next: 'write one' }, 'no payload; write one'],
    [{}, 'no payload'],
    [{ why: 'one\ntwo', next: 'write one' }, 'no payload: one; two; write one'],
  ])('says what, why and what next in one line: %j', (more, message) => {
    const error = new DelayqError('data', 'no payload', more);
    expect(error.message).toBe(message);
    expect(error).toMatchObject({ what: 'no payload', ...more });
  });

  it('has each part once if the error is made from another one', () => {
    const cause = new DelayqError('temporary', 'Redis refused', { why: 'OOM', next: 'wait' });
    expect(partly(cause)).toMatchObject({ code: 'unknown', message: 'Redis refused: OOM; wait', cause });
    expect(unknownOutcome(['a'], 'no reply').message).toMatch(/^job a may or may not be enqueued: no reply; repeat /);
  });

  it('is all that is printed of the parts', () => {
    const text = inspect(new DelayqError('unknown', 'no reply', { why: 'lost', next: 'wait', ids: ['a'] }));
    expect(text.match(/no reply|lost|wait/g)).toEqual(['no reply', 'lost', 'wait']);
    expect(text).toMatch(/^DelayqError: no reply: lost; wait\n[\s\S]*code: 'unknown',\n {2}ids: \[ 'a' \]/);
  });
});
