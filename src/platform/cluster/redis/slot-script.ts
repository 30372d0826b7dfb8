import type { Redis } from "ioredis";
import type { Clock } from "../../../lib/clock.ts";
import type { ParallelLimit } from "../interface.ts";
import { answerInTime } from "./connection.ts";

/**
 * Milliseconds for which an instance counts as joined after its last exchange. Longer than a dead
 * instance counts as alive, so that its slots are free when its share is.
 */
const LEASE_MS = 4_000;
/** Milliseconds after which unused keys expire. No call lasts as long. */
const KEY_LIFETIME_MS = 86_400_000;

/**
 * The slots that one instance reports as used and the calls that it requests slots for, in one
 * step.
 */
export interface SlotExchange {
  /** The name of this instance since it last joined: `<instance id>#<count>`. */
  readonly member: string;
  readonly instanceId: string;
  /** True if the instance joins. `limits` then has all limits within which its calls run. */
  readonly joins: boolean;
  /** Ids of the live instances. */
  readonly live: readonly string[];
  /** Running calls of this instance within each limit, without the requested ones. */
  readonly limits: readonly (ParallelLimit & { readonly used: number })[];
  /**
   * The requested calls. Each has the positions of its limits in `limits`, and the number of slots
   * that it leaves free in each.
   */
  readonly requests: readonly (readonly {
    readonly position: number;
    readonly reserved: number;
  }[])[];
}

/**
 * Thrown if the member is not joined: its lease has expired, Redis lost its data, or the instance
 * has joined again since.
 */
export class MembershipLost extends Error {}

interface Scripts {
  gatewaySlots(...words: (string | number)[]): Promise<number[]>;
}

/** The script of slots as functions. Each rejects if Redis does not answer in time. */
export class SlotScript {
  readonly #redis: Redis;
  readonly #clock: Clock;
  readonly #scripts: Scripts;
  readonly #keyPrefix: string;
  readonly #leaseMs: number;

  /** @param leaseMs milliseconds of a lease; shorter in tests */
  constructor(redis: Redis, clock: Clock, keyPrefix: string, leaseMs = LEASE_MS) {
    this.#clock = clock;
    this.#leaseMs = leaseMs;
    redis.defineCommand("gatewaySlots", { lua: EXCHANGE });
    this.#redis = redis;
    this.#scripts = redis as unknown as Scripts;
    this.#keyPrefix = `${keyPrefix}slots:`;
  }

  /**
   * Returns for each requested call whether it was granted. Rejects with MembershipLost if `member`
   * is not joined and does not join.
   */
  async exchange({
    member,
    instanceId,
    joins,
    live,
    limits,
    requests,
  }: SlotExchange): Promise<boolean[]> {
    const words: (string | number)[] = [limits.length + 1, this.#membersKey];
    for (const { id } of limits) words.push(`${this.#keyPrefix}of:${id}`);
    words.push(member, instanceId, joins ? 1 : 0, live.length, this.#leaseMs, ...live);
    for (const { used, max } of limits) words.push(used, max);
    for (const slots of requests) {
      words.push(slots.length);
      // Lua counts from 1, and the first key holds the members.
      for (const { position, reserved: spared } of slots) words.push(position + 2, spared);
    }
    const sent = this.#scripts.gatewaySlots(...words);
    const [verdict, ...granted] = await answerInTime(this.#clock, sent);
    if (verdict !== 1) throw new MembershipLost("this instance has not joined");
    return granted.map((reply) => reply === 1);
  }

  /** Leaves the joined instances, so that the others no longer count the calls of this one. */
  async leave(member: string): Promise<void> {
    await answerInTime(this.#clock, this.#redis.zrem(this.#membersKey, member));
  }

  get #membersKey(): string {
    return `${this.#keyPrefix}members`;
  }
}

/**
 * The script of an exchange.
 *
 * - KEYS: members (by the end of their leases), and for each limit a hash of the calls of each
 *   member.
 * - ARGV: member, instance, 1 if it joins, number of live instances, lease, the live instances.
 *   Then the used and maximum slots of each limit. Then for each requested call the number of its
 *   limits, their keys, and the slots that it leaves free.
 *
 * The answer is 1, and for each requested call 1 or 0; or only 0 if the member is not joined.
 *
 * A live instance that is not joined may be using its own share of each limit, so the script leaves
 * that share to it.
 */
const EXCHANGE = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local me, instance, joins, live = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local leaseMs = tonumber(ARGV[5])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local function nameOf(member) return string.match(member, '^(.*)#') end
local function countOf(member) return tonumber(string.match(member, '#(%d+)$')) end
if joins then
  for _, one in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if nameOf(one) == instance then
      if countOf(one) > countOf(me) then return {0} end
      redis.call('ZREM', KEYS[1], one)
    end
  end
elseif not redis.call('ZSCORE', KEYS[1], me) then return {0} end
redis.call('ZADD', KEYS[1], now + leaseMs, me)
redis.call('PEXPIRE', KEYS[1], ${KEY_LIFETIME_MS})
local members, present = {}, {}
for _, one in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  members[one] = true
  present[nameOf(one)] = true
end
local absent = 0
for i = 6, 5 + live do if not present[ARGV[i]] then absent = absent + 1 end end
local at = 6 + live
local taken, room = {}, {}
for i = 2, #KEYS do
  local max, others = tonumber(ARGV[at + 1]), 0
  taken[i] = tonumber(ARGV[at])
  at = at + 2
  local counts = redis.call('HGETALL', KEYS[i])
  for j = 1, #counts, 2 do
    if not members[counts[j]] then redis.call('HDEL', KEYS[i], counts[j])
    elseif counts[j] ~= me then others = others + tonumber(counts[j + 1]) end
  end
  if absent > 0 then max = math.max(1, max - absent * math.max(1, math.floor(max / live))) end
  room[i] = max - others - taken[i]
end
local answers = {1}
while ARGV[at] do
  local limits, fits = {}, true
  for i = 1, tonumber(ARGV[at]) do
    local limit = tonumber(ARGV[at + 2 * i - 1])
    limits[i] = limit
    fits = fits and room[limit] > tonumber(ARGV[at + 2 * i])
  end
  at = at + 1 + 2 * #limits
  if fits then
    for _, limit in ipairs(limits) do
      room[limit] = room[limit] - 1
      taken[limit] = taken[limit] + 1
    end
  end
  answers[#answers + 1] = fits and 1 or 0
end
for i = 2, #KEYS do
  if taken[i] > 0 then
    redis.call('HSET', KEYS[i], me, taken[i])
    redis.call('PEXPIRE', KEYS[i], ${KEY_LIFETIME_MS})
  else redis.call('HDEL', KEYS[i], me) end
end
return answers`;
