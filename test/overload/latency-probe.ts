/** A client in a process of its own, so that whoever makes the load does not hold it up: address, key, seconds. */
const [url, key, seconds] = process.argv.slice(2);
const untilMs = performance.now() + Number(seconds) * 1_000;
const INTERVAL_MS = 20;
const latenciesMs: number[] = [];
const failures: Record<string, number> = {};

async function call(): Promise<void> {
  const beganMs = performance.now();
  try {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({
        model: "sandbox/chat",
        messages: [{ role: "user", content: "hello" }],
        max_tokens: 8,
      }),
    });
    await response.text();
    if (response.status !== 200) failures[response.status] = (failures[response.status] ?? 0) + 1;
  } catch (error) {
    failures[String(error)] = (failures[String(error)] ?? 0) + 1;
  }
  latenciesMs.push(performance.now() - beganMs);
}

const calls: Promise<void>[] = [];
while (performance.now() < untilMs) {
  calls.push(call());
  await Bun.sleep(INTERVAL_MS);
}
await Promise.all(calls);
latenciesMs.sort((one, other) => one - other);
const at = (share: number) => latenciesMs[Math.floor((latenciesMs.length - 1) * share)];
process.stdout.write(
  JSON.stringify({
    calls: calls.length,
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    mostMs: at(1),
    failures,
  }),
);
