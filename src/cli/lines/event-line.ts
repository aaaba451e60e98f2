import type { JobEvent } from '../../internal.js';

/** An event as a line of JSON. */
export const eventLine = (queue: string, event: JobEvent): string => `${JSON.stringify({ queue, ...event })}\n`;
