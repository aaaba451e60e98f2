/**
 * What `open` of each peer returns: a client of the queue `bench`. A job is `data`, due at `at`, ms (default: now).
 *
 * @typedef {{ redis: { host: string, port: number }, beanstalkd: number }} Where
 *
 * @typedef {object} Peer
 * @property {(data: object, at?: number) => Promise<unknown>} add enqueues one job
 * @property {(jobs: { data: object, at?: number }[]) => Promise<unknown>} addMany enqueues many jobs, the fastest way the library has
 * @property {(n: number, handle: (data?: object) => Promise<void>) => Promise<unknown>} drain handles n due jobs; resolves when all are acknowledged
 * @property {(handle: (data: object) => Promise<unknown>) => Promise<unknown>} watch handles jobs as they fall due; resolves when it is listening
 * @property {() => Promise<unknown>} close
 */
export {};
