import { describe, expect, it } from 'vitest';
import { DelayqError } from '../../../src/index.js';
import type { Exchange } from '../../../src/serve/http/exchange.js';
import { Log, type LogLevel } from '../../../src/serve/http/log.js';
import { ManualClock } from '../../support/manual-clock.js';

const exchange = (status: number) =>
  ({
    status,
    method: 'PUT',
    route: '/api/:ns/:queue',
    who: '0123456789ab',
    id: 'ID',
    since: performance.now(),
  }) as Exchange;

function logged(level: LogLevel, status: number, cause?: unknown, delivered = true): string {
  let text = '';
  const write = (line: string) => {
    text += line;
    return true;
  };
  new Log(write, level).request({ ...exchange(status), cause } as Exchange, delivered);
  return text;
}

describe('the log of requests', () => {
  it('has when, what, the status, the time, who and the id', () => {
    const shape = /^\S{24} PUT \/api\/:ns\/:queue 201 \d+\.\dms 0123456789ab ID\n$/;
    expect(logged('all', 201)).toMatch(shape);
    expect(logged('all', 201, undefined, false)).toMatch(/ gone /);
  });

  it('has the frames of a bug, and not its message, which may quote a payload', () => {
    let bug: unknown;
    try {
      JSON.parse('secret payload');
    } catch (error) {
      bug = error;
    }
    expect(String(bug)).toContain('secret');
    const text = logged('errors', 500, bug);
    expect(text).toContain('SyntaxError');
    expect(text).toMatch(/\n +at .*log\.test\.ts/);
    expect(text).not.toContain('secret');
    expect(logged('errors', 500, 'secret')).not.toContain('secret');
  });

  it('has why Redis failed, and no id or text of a job', () => {
    const down = new DelayqError('unknown', 'job secret may or may not be enqueued', {
      why: 'no reply within 5 s',
      ids: ['secret'],
    });
    expect(logged('errors', 503, down)).toMatch(/ \(unknown: no reply within 5 s\)\n$/);
    const bad = new DelayqError('data', 'secret is not JSON', { why: 'at secret' });
    expect(logged('all', 400, bad)).toMatch(/ \(data\)\n$/);
  });

  it('has one of many failures of the same cause, and 10 s later how many there were', () => {
    const clock = new ManualClock();
    const lines: string[] = [];
    const log = new Log((line) => lines.push(line) > 0, 'errors', clock);
    const fail = (why: string) =>
      log.request({ ...exchange(503), cause: new DelayqError('temporary', 'x', { why }) } as Exchange, true);
    for (let i = 0; i < 100; i++) fail(`OOM ${i}`);
    fail('READONLY');
    expect(lines).toEqual([expect.stringMatching(/OOM 0\)\n$/), expect.stringMatching(/READONLY\)\n$/)]);
    clock.pass(9_999);
    expect(lines).toHaveLength(2);
    clock.pass(1);
    fail('OOM again');
    expect(lines.slice(2)).toEqual([expect.stringMatching(/ \(temporary: OOM 99\) \(and 98 more like it\)\n$/)]);
    clock.pass(10_000);
    expect(lines.slice(3)).toEqual([expect.stringMatching(/ \(temporary: OOM again\)\n$/)]);
    clock.pass(60_000);
    expect(lines).toHaveLength(4);
    fail('OOM later');
    expect(lines).toHaveLength(5);
  });
});
