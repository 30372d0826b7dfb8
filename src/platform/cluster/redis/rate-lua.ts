/*
 * The scripts of rate windows. Redis runs each as one step, by its own clock.
 *
 * The marker names the generation of the counters, `<run id of the server>:<word>`. If the marker
 * is missing, or names another run of the server, admissions were lost. The counters then restart
 * under another word.
 *
 * A window is a list of pairs: a bucket, and the number of admissions up to its end. The first pair
 * is the last one that has left the window, so the window has the difference of the last and the
 * first number. Nothing is ever summed up, and each bucket costs one step when it is added and one
 * when it is removed. A bucket is written as the time of its last admission, in buckets with a
 * fraction, and counts as long as that admission. An admission can count for more than one and can
 * be recounted later, which costs a step for each bucket since.
 *
 * `present` is a sorted set of the joined instances by the time of their last contact. The counters
 * include everything that such an instance admitted. A live instance that is not in the set may be
 * admitting its local share, so the joined instances leave that share to it. An instance that has
 * left admits nothing. It stays in the set with a time in the future, for as long as others may
 * still count it as alive.
 */

export const GENERATION_CHANGED = -1;
/** The result of a command that arrived after its caller had stopped waiting. */
export const TOO_LATE = -2;
export const CARRIED_OUT = 1;

/** @param clockKey a key with the time in milliseconds, instead of Redis's clock, for tests */
function preamble(clockKey: string | undefined): string {
  const now =
    clockKey === undefined
      ? "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000)"
      : `local now = tonumber(redis.call('GET', '${clockKey}'))`;
  return `${now}\n`;
}

/**
 * Checks the generation and the deadline. KEYS: marker, present. ARGV: generation, instance,
 * deadline.
 */
const CHECK = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {${GENERATION_CHANGED}, now} end
if now > tonumber(ARGV[3]) then return {${TOO_LATE}, now} end
`;

/**
 * Returns the script with which an instance attends. KEYS: marker, and present of the generation
 * that the instance knows. ARGV: word, lost generation, known generation, instance, lifetime,
 * deadline. After the deadline the instance may already admit its local share, so the script does
 * not count it as joined.
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
 * Returns the Lua function `leaveMs`. It returns the time at which admissions up to a time leave
 * the window, in the millisecond after its end. A time in buckets is exact only when rounded to its
 * millisecond.
 */
function leaveTime(bucketMs: number): string {
  return `
local function leaveMs(time) return math.floor(time * ${bucketMs} + 0.5) + (buckets - 1) * ${bucketMs} + 1 end
`;
}

/**
 * The Lua function that removes the pairs that have left the window. It returns the count of the
 * pair in front of the window, and the first bucket that counts.
 */
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

/**
 * The Lua function that returns the bucket with whose end `count` admissions after the first `gone`
 * have left the window, or nil if there are fewer.
 */
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
 * Returns the script that takes amounts of windows.
 *
 * - KEYS: marker, present, windows.
 * - ARGV: generation, instance, deadline, number of live instances, milliseconds for which an
 *   instance counts as joined after its last contact, buckets. Then for each window its limit and
 *   the full, reduced and least amount. Then the live instances.
 *
 * The answer has six numbers for each window:
 *
 * - 0 if rejected, 1 if admitted, 2 if admitted into a window that did not exist,
 * - the rest of the limit,
 * - milliseconds until the oldest admission leaves,
 * - if rejected, milliseconds until it would be admitted,
 * - the amount taken, and its bucket.
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

/**
 * Returns the script that counts the admissions in a window. KEYS: marker, present, window. ARGV:
 * generation, instance, deadline, buckets.
 */
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
 * Returns the script that changes the amounts of admissions that are still in their windows.
 *
 * - KEYS: marker, present, the name of the recount, windows.
 * - ARGV: generation, instance, deadline, how long the name is remembered. Then for each window the
 *   number of its changes, and for each change its bucket and its difference.
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
 * Returns the script that adds admissions without Redis to the windows, by their ages.
 *
 * - KEYS: marker, present, windows.
 * - ARGV: generation, instance, deadline, 1 if everything is reported and the instance is joined
 *   from now on, buckets. Then for each window the number of its pieces, and for each piece its age
 *   in milliseconds and its count.
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

/**
 * Returns the script with which an instance leaves. KEYS: present. ARGV: instance, and how long it
 * stays in the set.
 */
export function leaveLua(clockKey?: string): string {
  return `${preamble(clockKey)}
redis.call('ZADD', KEYS[1], 'XX', now + ARGV[2], ARGV[1])
return {${CARRIED_OUT}, now}`;
}
