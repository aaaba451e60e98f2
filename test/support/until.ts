import { setTimeout as sleep } from 'node:timers/promises';

/** Waits for `awaited`. Fails after `ms`, and says that it was `what` that did not end. */
export async function within<T>(ms: number, what: string, awaited: T | Promise<T>): Promise<T> {
  // Made here, where it still knows who waits.
  const error = new Error(`did not end within ${ms} ms: ${what}`);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(error), ms);
  });
  return Promise.race([awaited, late]).finally(() => clearTimeout(timer));
}

/** Waits until `condition` is true, and checks often. Fails after `ms`, also if `condition` itself does not end. */
export async function until(condition: () => unknown, ms = 30_000): Promise<void> {
  const since = performance.now();
  for (let asked = since; !(await within(ms, String(condition), condition())); asked = performance.now()) {
    const now = performance.now();
    if (now - since > ms) throw new Error(`did not come true within ${ms} ms: ${condition}`);
    // Whoever waits long, or reads a long log, must not keep a slow machine busy.
    await sleep(Math.min(50, Math.max(5, now - asked, (now - since) / 10)));
  }
}
