import { expect, it } from 'vitest';
import { Books, type Delivery, type Sent } from './http-books.js';

const NOTHING = { present: new Set<string>(), dead: new Set<string>(), torn: [] as string[] };

/** Ten jobs, published, delivered and acked: books that balance. */
function all() {
  const books = new Books();
  const stats: Record<string, number> = { enqueued: 10, acked: 10 };
  const jobs = Array.from({ length: 10 }, (_, i) => {
    const job = books.sending('q', { delayMs: 0, tries: 3 });
    Object.assign(job, { id: `id-${i}`, outcome: 'published', told: job.sent });
    return job;
  });
  const deliveries = jobs.map((job) => again(books, job, { receipt: `r${job.key}` }, 2));
  for (const delivery of deliveries) delivery.ack = { outcome: 'done', at: delivery.to };
  return { books, stats, job: jobs[0] as Sent, first: deliveries[0] as Delivery };
}

/** Delivers a job; `left`: how many deliveries it has after this one. */
function again(books: Books, job: Sent, change: Partial<Delivery>, left: number): Delivery {
  const told = { job_id: job.id as string, data: job.body.toString('base64'), remain_tries: left };
  const how = { receipt: 'other', from: job.sent, to: job.sent, leaseMs: 1_000, ...change };
  return books.delivered(told, how) as Delivery;
}

const violationsOf = ({ books, stats }: ReturnType<typeof all>) =>
  books.balance('q', [], { ...NOTHING, stats }, [], false).violations.join('\n');

it('books of jobs that were published, delivered and acked over HTTP balance', () => {
  expect(violationsOf(all())).toBe('');
});

it('a job that was given back in a way that does not count may come again at once, with the same count', () => {
  const of = all();
  Object.assign(of.first, { ack: undefined, isReleased: true, leaseMs: 0 });
  again(of.books, of.job, {}, 2).ack = { outcome: 'done', at: of.job.sent };
  expect(violationsOf(of)).toBe('');
});

it.each<[string, (of: ReturnType<typeof all>) => unknown, RegExp]>([
  ['a job is lost', ({ first }) => delete first.ack, /published and are lost/],
  [
    'a job was cut off in its request, and is there',
    ({ job }) => Object.assign(job, { outcome: 'refused' }),
    /refused/,
  ],
  ['a job came early', ({ job }) => Object.assign(job, { delayMs: 10 }), /early/],
  ['two clients got a job at once', ({ books, job }) => again(books, job, { receipt: 'r0' }, 2), /under one lease/],
  ['a job came again while its lease ran', ({ books, job }) => again(books, job, {}, 1), /while their lease ran/],
  ['a job came again, uncounted', ({ books, job }) => again(books, job, {}, 2), /nothing had ended/],
  [
    'a job came after its ack',
    ({ books, job }) => again(books, job, { from: job.sent + 1 }, 1),
    /after they were acked/,
  ],
  ['a job came more often than it may', ({ books, job }) => again(books, job, {}, -1), /more often/],
  ['more leases were lost than clients left', ({ stats }) => Object.assign(stats, { lost: 1 }), /only 0 may/],
  ['the counters do not add up', ({ stats }) => Object.assign(stats, { enqueued: 11 }), /add up/],
])('they do not balance when %s', (_, change, said) => {
  const of = all();
  change(of);
  expect(violationsOf(of)).toMatch(said);
});
