import { describe, expect, it } from 'vitest';
import { errorKind, isOfKind } from '../../src/model/error-kind.js';

describe('the kind of an error', () => {
  it.each([
    ['exit status 1: connect ECONNREFUSED 10.0.0.7:8443', 'exit status 1: connect ECONNREFUSED …'],
    ['exit 1: connection refused', 'exit 1: connection refused'],
    ['POST https://api.example.com/v1/orders/42 failed: HTTP 503', 'POST … failed: HTTP 503'],
    ['order 42 of customer 7 not found', 'order … of customer … not found'],
    ['no such job 0b8ddf1c-1df2-4c3a-9d0e-6a3b5d6a1f00', 'no such job …'],
    ['duplicate key ord_8f3a2b91', 'duplicate key …'],
    ['timeout after 30.5 s', 'timeout after … s'],
    ['getaddrinfo ENOTFOUND db-3.internal.example.org', 'getaddrinfo ENOTFOUND …'],
    ['connect ECONNREFUSED localhost:6379', 'connect ECONNREFUSED …'],
    ['connect ECONNREFUSED ::1:6379', 'connect ECONNREFUSED …'],
    ['2026-11-25T12:00:01Z worker[4711]: boom', '… worker[…]: boom'],
    ['handler ended by SIGKILL', 'handler ended by SIGKILL'],
    ['first\tline\u001b[31m\nsecond', 'first line […m'],
    ['left\u202eto right\u200b', 'left to right'],
    ['', ''],
  ])('of %j is %j', (error, kind) => {
    expect(errorKind(error)).toBe(kind);
  });

  it('is short and quickly found whatever the error is', () => {
    for (const text of ['a.'.repeat(500_000), ':'.repeat(500_000), '1a'.repeat(500_000), '😀'.repeat(500)])
      expect(errorKind(text).length).toBeLessThanOrEqual(120);
  });
});

describe('a text finds an error', () => {
  const error = 'GET https://a.example.com/7: HTTP 502 (Bad\tGateway) after 30 s\nsecond line';

  it.each([
    'HTTP 502',
    'second line',
    'after 30 s',
    errorKind(error),
    'GET … HTTP 502',
    'GET … HTTP 502 (Bad Gat…',
    '… after … s',
    '…',
  ])('by itself or by its kind: %j', (text) => {
    expect(isOfKind(error, text)).toBe(true);
  });

  it.each(['HTTP 50.', 'http 502', 'after … GET', 'HTTP 503', 'GET*', 'HTTP 502 … HTTP 502'])(
    'and not by %j',
    (text) => {
      expect(isOfKind(error, text)).toBe(false);
    },
  );

  it('of every error by the whole kind or its beginning', () => {
    for (const one of [error, 'x'.repeat(2_000), '…', 'a … b 7', '\u0000\u001b[2J 5', ' \n', '😀'.repeat(100)]) {
      const kind = errorKind(one);
      expect(isOfKind(one, kind)).toBe(true);
      expect(isOfKind(one, `${kind.slice(0, 20)}…`)).toBe(true);
    }
  });
});
