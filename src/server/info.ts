import { bad, type Finding, fine, redisCli, unknown } from '../health/finding.js';
import { many, sizeText } from '../model/text.js';
import { formatDuration } from '../model/time.js';

/** The fields of INFO; empty if INFO is not allowed. */
export type Info = Readonly<Record<string, string>>;

export function parseInfo(text: string): Info {
  return Object.fromEntries([...text.matchAll(/^([^#:\r\n]+):(.*)$/gm)].map(([, name, value]) => [name, value]));
}

/** A fork that takes longer delays all commands noticeably, µs. */
const LONG_FORK_US = 250_000;

/** A replica further behind than this is a warning, s. */
const REPLICA_LAG_S = 10;

/** Checks that the server accepts writes. */
export function role(info: Info): Finding {
  if (info.role === undefined) return unknown('role', 'INFO shows no role');
  if (info.role === 'master') return fine('role', 'a primary: it accepts writes');
  const primary = `${info.master_host}:${info.master_port}`;
  const why = 'a replica does not accept writes: nothing can be enqueued or drained here';
  return bad('fail', 'role', `a replica of ${primary}`, why, `connect to the primary instead: redis://${primary}`);
}

/** Checks that Redis does not delete keys when it is full. */
export function eviction(info: Info): Finding {
  const policy = info.maxmemory_policy;
  if (!policy) return unknown('eviction', 'INFO shows no maxmemory-policy');
  if (policy === 'noeviction') return fine('eviction', 'noeviction: Redis never deletes a queue to free memory');
  const cure = 'delayq doctor --set-noeviction';
  const what = `maxmemory-policy is ${policy}`;
  if (policy.startsWith('allkeys')) {
    const when = info.maxmemory === '0' ? 'once maxmemory is set, a full ' : 'a full ';
    return bad('fail', 'eviction', what, `${when}Redis deletes whole queues with all their jobs to free memory`, cure);
  }
  const why = 'keys of queues never expire, so they are safe until someone calls EXPIRE on one';
  return bad('warn', 'eviction', what, why, cure);
}

/** Checks that memory is left. */
export function memory(info: Info, address: string): Finding {
  const used = Number(info.used_memory);
  const capacity = Number(info.maxmemory) || Number(info.total_system_memory);
  if (!(used > 0 && capacity > 0)) return unknown('memory', 'INFO shows no memory');
  const limited = Number(info.maxmemory) > 0;
  const limit = limited
    ? `of ${sizeText(capacity)} (maxmemory)`
    : `of the ${sizeText(capacity)} of the machine (no maxmemory)`;
  const what = `${sizeText(used)} ${limit} used`;
  const share = used / capacity;
  if (share < 0.8) return fine('memory', what);
  const why = limited
    ? 'a full Redis refuses new jobs (drain, ack and cancel still work)'
    : 'a machine that runs out of memory swaps, or kills Redis';
  const cure = limited
    ? `${redisCli(address, `config set maxmemory ${Math.ceil((Math.max(capacity, used) * 1.5) / 1024 ** 2)}mb`)}  # if the machine has it; or drain, cancel, purge`
    : 'give the machine more memory, set maxmemory, or drain, cancel, purge';
  return bad(share >= 0.95 ? 'fail' : 'warn', 'memory', what, why, cure);
}

/** How a server writes to its disk: settings are undefined if CONFIG is not allowed. */
interface Disk {
  readonly save: string | undefined;
  readonly fsync: string | undefined;
  /** Whether it confirms jobs of --durable before their sync. */
  readonly early?: boolean;
  readonly address: string;
}

/** Checks what a crash of Redis would lose. */
export function persistence(info: Info, { save, fsync, early = false, address }: Disk): Finding[] {
  if (info.aof_enabled === undefined) return [unknown('persistence', 'INFO shows nothing about it')];
  const set = redisCli(address, 'config set appendonly yes');
  const on =
    info.config_file === ''
      ? `${set}  # until Redis restarts: it has no configuration file, so add --appendonly yes where it is started`
      : `${set} && ${redisCli(address, 'config rewrite')}`;
  const log = 'look at the log of Redis and at its disk space';
  const found: Finding[] = [];
  if (info.aof_enabled === '1') {
    if (info.aof_last_write_status !== 'ok') {
      const why = 'Redis refuses writes until one succeeds';
      found.push(bad('fail', 'aof', 'the last write to the AOF failed', why, log));
    } else if (fsync === 'no') {
      const cure = redisCli(address, 'config set appendfsync everysec');
      const why = 'a crash of the machine loses what the system has not written to disk, up to 30 s of jobs';
      found.push(bad('warn', 'aof', 'the AOF is on, with appendfsync no', why, cure));
    } else {
      const lost = fsync === 'always' ? 'nothing' : 'about a second of jobs';
      const how = fsync === undefined ? '' : ` (appendfsync ${fsync})`;
      const durable = early && fsync === 'everysec' ? ', also of --durable ones' : '';
      found.push(fine('aof', `the AOF is on${how}: a crash of the machine loses ${fsync ? lost : 'little'}${durable}`));
    }
    if (info.aof_last_bgrewrite_status && info.aof_last_bgrewrite_status !== 'ok') {
      const why = 'the file grows until it succeeds';
      found.push(bad('warn', 'aof-rewrite', 'the last rewrite of the AOF failed', why, log));
    }
  } else if (save === '') {
    found.push(bad('warn', 'persistence', 'neither AOF nor RDB', 'all jobs are lost when Redis stops', on));
  } else {
    const saved = Number(info.rdb_last_save_time) * 1000;
    const ago = saved > 0 ? `, the last ${formatDuration(Date.now() - saved)} ago` : '';
    const changes = Number(info.rdb_changes_since_last_save) || 0;
    const kind = save === undefined ? 'no AOF, and at most snapshots (RDB)' : 'snapshots only (RDB)';
    const why = 'a crash loses all jobs enqueued since the last snapshot, and brings back those done since';
    found.push(bad('warn', 'persistence', `${kind}${ago}, ${many(changes, 'change')} since`, why, on));
  }
  if (info.rdb_last_bgsave_status && info.rdb_last_bgsave_status !== 'ok') {
    const why = 'Redis refuses writes until it can save (stop-writes-on-bgsave-error)';
    found.push(bad('fail', 'rdb', 'the last snapshot (RDB) failed', why, log));
  }
  const fork = Number(info.latest_fork_usec);
  if (fork > LONG_FORK_US) {
    const why = 'all commands wait that long whenever Redis saves or rewrites its AOF';
    const cure = 'disable transparent huge pages on the machine, or spread the queues over several Redis servers';
    found.push(bad('warn', 'fork', `the last fork took ${formatDuration(fork / 1000)}`, why, cure));
  }
  return found;
}

/** Checks that the replicas keep up. */
export function replicas(info: Info): Finding {
  if (info.connected_slaves === undefined) return unknown('replicas', 'INFO shows nothing about them');
  const list = Object.entries(info).filter(([name]) => /^slave\d+$/.test(name));
  if (list.length === 0) return fine('replicas', 'no replicas connected');
  const read = list.map(([, text]) => Object.fromEntries(text.split(',').map((part) => part.split('='))));
  const worst = Math.max(...read.map(({ lag }) => Number(lag) || 0));
  const away = read.filter(({ state }) => state !== 'online').length;
  const what = `${many(list.length, 'replica')} connected, at most ${worst} s behind`;
  if (away === 0 && worst <= REPLICA_LAG_S) {
    return fine('replicas', `${what}; without enqueue --replicas ${list.length}, one that takes over may lack jobs`);
  }
  const why = 'writes that have not reached a replica are lost if it is promoted';
  const cure = 'look at the network between the servers and at the log of the replica';
  return bad('warn', 'replicas', away > 0 ? `${what}, ${away} not online` : what, why, cure);
}
