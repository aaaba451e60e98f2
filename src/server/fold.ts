import type { Finding } from '../health/finding.js';

/** A finding with a figure: of several servers in order, only that with the highest rank is shown. */
export interface Ranked extends Finding {
  readonly rank?: number;
}

/** What was found about one server. */
export interface Report {
  readonly address: string;
  readonly findings: readonly Ranked[];
}

interface Entry {
  readonly address: string;
  readonly rank: number | undefined;
  readonly finding: Finding;
}

/** Merges the findings of several servers: equal ones become one. */
export function fold(reports: readonly Report[]): Finding[] {
  const all = reports.flatMap(({ address, findings }) =>
    findings.map(({ rank, ...finding }): Entry => ({ address, rank, finding })),
  );
  if (reports.length === 1) return all.map(({ finding }) => finding);
  return [...new Set(all.map(({ finding }) => finding.check))].flatMap((check) => {
    const entries = all.filter(({ finding }) => finding.check === check);
    const groups = new Map<string, Entry[]>();
    for (const entry of entries) {
      const { level, what, why } = entry.finding;
      const key = entry.rank === undefined ? [level, what, why].join('\n') : '';
      groups.set(key, [...(groups.get(key) ?? []), entry]);
    }
    return [...groups.values()].map((group) => merged(group, reports.length));
  });
}

function merged(group: readonly Entry[], total: number): Finding {
  const [first] = [...group].sort((a, b) => Number(b.rank) - Number(a.rank)) as [Entry];
  const { finding, address, rank } = first;
  if (rank !== undefined && group.length > 1) {
    return { ...finding, what: `${finding.what} (the worst of ${group.length} nodes)`, nodes: [address] };
  }
  const next = nextOf(group);
  const whole = { ...finding, ...(next !== undefined && { next }) };
  if (group.length < total) return { ...whole, nodes: group.map((one) => one.address) };
  return finding.level === 'ok' ? finding : { ...whole, what: `${finding.what} (on ${total} nodes)` };
}

/** One command for all servers of a group. */
function nextOf(group: readonly Entry[]): string | undefined {
  const [first] = group as [Entry];
  const { next } = first.finding;
  const looped = next?.replaceAll(first.address, '$url');
  const isLoop = group.every(({ address, finding }) => finding.next?.replaceAll(address, '$url') === looped);
  if (next === looped || group.length === 1) return next;
  // A comment would hide the end of the loop.
  const [command, ...comment] = looped?.split(/(?= {2}# )/) ?? [];
  if (isLoop)
    return `for url in ${group.map(({ address }) => address).join(' ')}; do ${command}; done${comment.join('')}`;
  return [...new Set(group.map(({ finding }) => finding.next))].join('; ');
}
