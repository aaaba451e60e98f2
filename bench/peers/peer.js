/**
 * What every file here can `open`: a client of a queue called `bench`. A job is `data`, and due at `at`, ms (left out: now).
 *
 * @typedef {{ redis: { host: string, port: number }, beanstalkd: number }} Where
 *
 * @typedef {object} Peer
 * @property {(data: object, at?: number) => Promise<unknown>} add puts one job in
 * @property {(jobs: { data: object, at?: number }[]) => Promise<unknown>} addMany puts many in, the fastest way there is
 * @property {(n: number, handle: (data?: object) => Promise<void>) => Promise<unknown>} drain handles n due jobs; resolves when all are confirmed
 * @property {(handle: (data: object) => Promise<unknown>) => Promise<unknown>} watch goes on handling jobs as they fall due; resolves when it listens
 * @property {() => Promise<unknown>} close
 */
export {};
