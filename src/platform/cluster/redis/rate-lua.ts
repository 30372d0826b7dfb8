/*
 * The scripts of rate windows. Redis runs each as one step, under its own clock.
 *
 * The marker names the generation of counters, `<run id of the server>:<word>`. Where it is gone, or names
 * another run of the server, admissions were lost, and the counters start over under another word.
 *
 * A window is a list of pairs: a bucket, and how many admissions there were up to its end. The first pair
 * is the last one that has left the window, so the difference of last and first is what the window holds;
 * nothing is ever summed up, and each bucket costs one step when it comes and one when it leaves. A bucket
 * is written as the time of its last admission, in buckets with a fraction, and counts as long as that one.
 * An admission may count for more than one, and be recounted later: that costs a step for each bucket since.
 *
 * `present` is a sorted set of the instances that take part, by when they last did: what such an instance
 * admitted is in the counters. An instance that lives and is not in it may be admitting its local share,
 * so those who take part leave that share to it. One that has left admits nothing any more, and stands there
 * as if from the future, for as long as others may still take it for one that lives.
 */

export const GENERATION_CHANGED = -1;
/** The command arrived after its caller had stopped waiting. */
export const TOO_LATE = -2;
export const CARRIED_OUT = 1;

/** @param clockKey a key that holds the time in milliseconds, in place of Redis's clock, for tests */
function preamble(clockKey: string | undefined): string {
  const now =
    clockKey === undefined
      ? "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000)"
      : `local now = tonumber(redis.call('GET', '${clockKey}'))`;
  return `${now}\n`;
}

/** KEYS marker, present. ARGV generation, instance, deadline. */
const CHECK = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {${GENERATION_CHANGED}, now} end
if now > tonumber(ARGV[3]) then return {${TOO_LATE}, now} end
`;

/**
 * KEYS marker, and present of the generation in ARGV. ARGV word, lost generation, known one, instance, lifetime,
 * deadline. Behind that the instance may admit its local share already, and takes no part.
 */
export function attendLua(clockKey?: string): string {
  return `${preamble(clockKey)}
local info = redis.pcall('INFO', 'server')
local run = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or 'unknown'
local generation = redis.call('GET', KEYS[1])
if not generation or generation == ARGV[2] or string.sub(generation, 1, #run + 1) ~= run .. ':' then
  generation = run .. ':' .. ARGV[1]
end
redis.call('SET', KEYS[1], generation, 'PX', ARGV[5])
if generation == ARGV[3] and now <= tonumber(ARGV[6]) then
  redis.call('ZADD', KEYS[2], now, ARGV[4])
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[5])
  redis.call('PEXPIRE', KEYS[2], ARGV[5])
end
return {${CARRIED_OUT}, now, generation}`;
}

/**
 * When what was admitted last at this time leaves the window: in the millisecond behind its end. A time in
 * buckets is exact only when rounded to its millisecond.
 */
function leaveTime(bucketMs: number): string {
  return `
local function leaveMs(time) return math.floor(time * ${bucketMs} + 0.5) + (buckets - 1) * ${bucketMs} + 1 end
`;
}

/** Drops what has left the window; gives the count of the pair before the window, and its first bucket that counts. */
const EXPIRE = `
local function expire(key)
  local cut, span = 0, 4
  while true do
    local pairs = redis.call('LRANGE', key, cut, cut + span - 1)
    local i = 1
    while pairs[i + 2] and leaveMs(tonumber(pairs[i + 2])) <= now do i = i + 2 end
    cut = cut + i - 1
    if pairs[i + 2] or #pairs < span then
      if cut > 0 then redis.call('LTRIM', key, cut, -1) end
      local gone = tonumber(pairs[i + 1])
      if pairs[i + 3] and pairs[i + 3] == pairs[i + 1] then return gone, leaves(key, gone, 1) end
      return gone, tonumber(pairs[i + 2])
    end
    span = 256
  end
end
`;

/** The bucket at whose end \`count\` more than \`gone\` have left. */
const LEAVES = `
local function leaves(key, gone, count)
  local from = 2
  while true do
    local pairs = redis.call('LRANGE', key, from, from + 127)
    for i = 1, #pairs, 2 do
      if tonumber(pairs[i + 1]) - gone >= count then return tonumber(pairs[i]) end
    end
    if #pairs < 128 then return nil end
    from = from + 128
  end
end
`;

/**
 * KEYS marker, present, windows. ARGV generation, instance, deadline, how many instances live, how recently
 * those present took part, buckets, of each window its limit and the full, reduced and least amount, and who lives.
 * Answers six numbers for each: 0 refused, 1 admitted, 2 admitted into a window that was not there; how much is left;
 * in how many milliseconds the oldest leaves; for a refusal, in how many it will be admitted; how much was taken, and
 * in which bucket.
 */
export function takeLua(bucketMs: number, clockKey?: string): string {
  return `${preamble(clockKey)}${CHECK}
local buckets = tonumber(ARGV[6])
${leaveTime(bucketMs)}${LEAVES}${EXPIRE}
redis.call('ZADD', KEYS[2], now, ARGV[2])
local live, missing = tonumber(ARGV[4]), 0
for i = #ARGV - live + 1, #ARGV do
  local seen = redis.call('ZSCORE', KEYS[2], ARGV[i])
  if not seen or tonumber(seen) < now - ARGV[5] then missing = missing + 1 end
end
local time = now / ${bucketMs}
local bucket = math.floor(time)
local answers = {${CARRIED_OUT}, now}
for i = 3, #KEYS do
  local key = KEYS[i]
  local at = 4 * i - 5
  local limit, full = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local reduced, least = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  if missing > 0 then limit = math.max(1, limit - missing * math.max(1, math.floor(limit / live))) end
  local verdict = 1
  local gone, first = expire(key)
  local newest, admitted
  if gone then
    local last = redis.call('LRANGE', key, -2, -1)
    newest, admitted = tonumber(last[1]), tonumber(last[2])
  else
    verdict, gone, newest, admitted = 2, 0, 0, 0
    redis.call('RPUSH', key, 0, 0)
  end
  local total = admitted - gone
  local left = limit - total
  local taken, into, retryMs = 0, bucket, 0
  if full <= left then taken = full
  elseif least <= left then taken = math.min(reduced, left) end
  if taken > 0 then
    total = total + taken
    if newest >= bucket then
      into = math.floor(newest)
      redis.call('LSET', key, -1, admitted + taken)
      if newest < time then redis.call('LSET', key, -2, time) end
      if first == newest then first = math.max(newest, time) end
    else
      redis.call('RPUSH', key, time, admitted + taken)
      redis.call('PEXPIRE', key, (buckets + 10) * ${bucketMs})
    end
    first = first or time
  else
    verdict = 0
    local last = full == 1 and left == 0 and first or leaves(key, gone, least - left) or time
    retryMs = math.max(1, leaveMs(last) - now)
  end
  local n = #answers
  answers[n + 1] = verdict
  answers[n + 2] = math.max(0, limit - total)
  answers[n + 3] = leaveMs(first or time) - now
  answers[n + 4] = retryMs
  answers[n + 5] = taken
  answers[n + 6] = into
end
return answers`;
}

/** KEYS marker, present, window. ARGV generation, instance, deadline, buckets. Answers what the window holds. */
export function countLua(bucketMs: number, clockKey?: string): string {
  return `${preamble(clockKey)}${CHECK}
local buckets = tonumber(ARGV[4])
${leaveTime(bucketMs)}${LEAVES}${EXPIRE}
local gone = expire(KEYS[3])
if not gone then return {${CARRIED_OUT}, now, 0} end
local last = redis.call('LRANGE', KEYS[3], -1, -1)
return {${CARRIED_OUT}, now, tonumber(last[1]) - gone}`;
}

/**
 * Changes what admissions count for that are in their windows yet. KEYS marker, present, the name of the recount,
 * windows. ARGV generation, instance, deadline, for how long the name is remembered, and for each window the number
 * of its changes and of each of these its bucket and by how much.
 */
export function recountLua(clockKey?: string): string {
  return `${preamble(clockKey)}${CHECK}
if not redis.call('SET', KEYS[3], 1, 'PX', ARGV[4], 'NX') then return {${CARRIED_OUT}, now} end
local at = 5
for i = 4, #KEYS do
  local key = KEYS[i]
  local changes, oldest = {}, math.huge
  for j = at + 1, at + 2 * tonumber(ARGV[at]), 2 do
    local bucket = tonumber(ARGV[j])
    changes[bucket] = tonumber(ARGV[j + 1])
    oldest = math.min(oldest, bucket)
  end
  at = at + 1 + 2 * tonumber(ARGV[at])
  local length = redis.call('LLEN', key)
  local span, pairs = 0, {}
  while span < length and (span == 0 or math.floor(tonumber(pairs[1])) >= oldest) do
    span = math.min(4 * span + 32, length)
    pairs = redis.call('LRANGE', key, -span, -1)
  end
  local from, shift, before = nil, 0, tonumber(pairs[2])
  for j = 3, #pairs, 2 do
    local admitted = tonumber(pairs[j + 1])
    local by = changes[math.floor(tonumber(pairs[j]))]
    if by then
      shift = shift + math.max(by, before - admitted)
      from = from or j
    end
    before = admitted
    if from then pairs[j + 1] = admitted + shift end
  end
  if from then
    redis.call('LTRIM', key, 0, length - #pairs + from - 2)
    redis.call('RPUSH', key, unpack(pairs, from))
  end
end
return {${CARRIED_OUT}, now}`;
}

/**
 * Adds admissions that were made without Redis to the windows, at their ages. KEYS marker, present, windows.
 * ARGV generation, instance, deadline, whether everything is reported and the instance takes part from now on, buckets,
 * and for each window the number of its pieces and for each of these its age in milliseconds and its count.
 */
export function mergeLua(bucketMs: number, clockKey?: string): string {
  return `${preamble(clockKey)}${CHECK}
local buckets = tonumber(ARGV[5])
local at = 6
for i = 3, #KEYS do
  local key = KEYS[i]
  local counts, times, order = {}, {}, {}
  local function add(time, count)
    local bucket = math.floor(time)
    if not counts[bucket] then order[#order + 1] = bucket end
    counts[bucket] = (counts[bucket] or 0) + count
    times[bucket] = math.max(times[bucket] or 0, time)
  end
  local pairs = redis.call('LRANGE', key, 0, -1)
  for j = 3, #pairs, 2 do add(tonumber(pairs[j]), tonumber(pairs[j + 1]) - tonumber(pairs[j - 1])) end
  local pieces = tonumber(ARGV[at])
  for j = at + 1, at + 2 * pieces, 2 do
    add((now - ARGV[j]) / ${bucketMs}, tonumber(ARGV[j + 1]))
  end
  at = at + 1 + 2 * pieces
  table.sort(order)
  redis.call('DEL', key)
  redis.call('RPUSH', key, 0, 0)
  local total = 0
  for _, bucket in ipairs(order) do
    total = total + counts[bucket]
    redis.call('RPUSH', key, times[bucket], total)
  end
  redis.call('PEXPIRE', key, (buckets + 10) * ${bucketMs})
end
if ARGV[4] == '1' then redis.call('ZADD', KEYS[2], now, ARGV[2]) end
return {${CARRIED_OUT}, now}`;
}

/** KEYS present. ARGV instance, and for how long it stands there yet. */
export function leaveLua(clockKey?: string): string {
  return `${preamble(clockKey)}
redis.call('ZADD', KEYS[1], 'XX', now + ARGV[2], ARGV[1])
return {${CARRIED_OUT}, now}`;
}
