import { afterwards } from './afterwards.js';

/** A clock, ms, which stands still while a busy machine does not let this process run. */
export function ownTime(): () => number {
  let ms = 0;
  const ticks = setInterval(() => {
    ms += 10;
  }, 10);
  afterwards(() => clearInterval(ticks));
  return () => ms;
}
