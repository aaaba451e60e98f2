import type { Command } from 'commander';
import { type Filter, parseMoment, type State } from '../../internal.js';
import type { Context, Globals } from '../host/context.js';
import { usageError } from './command.js';
import { count } from './options.js';

/** The options that choose jobs: the same for every command that lists or edits jobs. */
export interface FilterOptions extends Globals {
  readonly pending?: boolean;
  readonly active?: boolean;
  readonly dead?: boolean;
  readonly overdue?: boolean;
  readonly failed?: boolean;
  readonly from?: string;
  readonly to?: string;
  readonly grep?: string;
  readonly error?: string;
  readonly number?: number;
  readonly tz?: string;
}

const STATES: Record<State, string> = {
  dead: 'dead jobs, those dead for longest first',
  active: 'active jobs: those that a consumer holds',
  pending: 'pending jobs, the next one due first',
};

/** Adds the options that choose among jobs of `states`. */
export function addFilters(command: Command, states: readonly State[]): Command {
  if (states.length > 1) for (const state of states) command.option(`--${state}`, STATES[state]);
  if (states.includes('pending')) {
    command
      .option('--overdue', 'pending jobs that are due')
      .option('--failed', 'pending jobs that wait for another try, those that failed last first');
  }
  return command
    .option('--from <time>', 'from this time on: -2h, +15m, 14:00, "2026-11-21 14:00" …')
    .option('--to <time>', 'up to this time: the due time, the end of the lease, or the time of death')
    .option('--grep <text>', 'jobs with this text (no pattern) in the id, payload or last error')
    .option(
      '--error <text>',
      'jobs with just this error of list --errors; if there are none, with this text in the last error',
    )
    .option('-n, --number <n>', 'at most n jobs', count)
    .option('--tz <zone>', 'time zone of the times given (env DELAYQ_TZ, TZ)');
}

export function isFiltered(options: FilterOptions): boolean {
  const filters = ['pending', 'active', 'dead', 'overdue', 'failed', 'from', 'to', 'grep', 'error', 'number'] as const;
  return filters.some((name) => options[name] !== undefined);
}

/** The filter of the options, among jobs of `states`. Throws `usage` if they contradict each other. */
export function filterOf(
  context: Context,
  options: FilterOptions,
  { states, now }: { states: readonly State[]; now: number },
): Filter {
  const { overdue, failed, grep: text, error, number: limit } = options;
  for (const name of ['grep', 'error'] as const)
    if (options[name] === '') throw usageError(`--${name} needs a text`, `write --${name} 'text'`);
  const zone = context.zone(options);
  const moment = (word: string | undefined) => (word === undefined ? undefined : parseMoment(word, { zone, now }));
  const from = moment(options.from);
  const to = moment(options.to);
  if (from !== undefined && to !== undefined && from > to)
    throw usageError(`--from ${options.from} is after --to ${options.to}`, 'swap them');
  const asked = states.filter((state) => options[state] || ((overdue || failed) && state === 'pending'));
  return {
    states: asked.length > 0 ? asked : states,
    from,
    to: overdue && (to === undefined || to > now) ? now : to,
    text,
    error,
    failed,
    limit,
  };
}
