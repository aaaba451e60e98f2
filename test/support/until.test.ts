import { expect, it } from 'vitest';
import { until, within } from './until.js';

it('what does not end fails in time, and says what it is', async () => {
  const never = new Promise<boolean>(() => {});
  await expect(within(20, 'a queue', never)).rejects.toThrow('did not end within 20 ms: a queue');
  await expect(until(() => never, 20)).rejects.toThrow('did not end within 20 ms: () => never');
  await expect(until(() => false, 20)).rejects.toThrow('did not come true within 20 ms: () => false');
});
