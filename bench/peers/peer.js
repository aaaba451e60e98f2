/**
 * What `open` of each peer returns: a client of the queue `bench`. A job is `data`, due at `at`, ms (default: now).
 *
 * @typedef {object} Where
 * @property {{ host: string, port: number }} redis
 * @property {number} [beanstalkd] its port
 * @property {string} [postgres] its URL
 * @property {number} server the process of the server that the peer uses
 * @property {number} [tries] the tries of each job, stored with it (delayq only)
 *
 * @typedef {object} Peer
 * @property {(data: object, at?: number) => Promise<unknown>} add enqueues one job
 * @property {(jobs: { data: object, at?: number }[]) => Promise<unknown>} addMany enqueues many jobs, the fastest way the library has
 * @property {(n: number, handle: (data?: object) => Promise<void>, concurrency?: number) => Promise<unknown>} drain handles n due jobs, 100 at a time by default; resolves when all are acknowledged
 * @property {(n: number, handle: (data?: object) => Promise<void>) => Promise<unknown>} [takeEach] takes and acknowledges n due jobs, a call after another
 * @property {(handle: (data: object) => Promise<unknown>) => Promise<unknown>} watch handles jobs as they fall due; resolves when it is listening
 * @property {() => Promise<unknown>} close
 */
export {};
