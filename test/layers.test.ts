import { expect, test } from "bun:test";
import { dirname, join, normalize, relative } from "node:path";
import { Glob } from "bun";

/** The wings, lowest first. A file imports from its own wing and from those before it. */
const WINGS: readonly string[] = [
  "package.json",
  "src/lib",
  "db",
  "src/platform",
  "actors",
  "src/documents",
  "src/providers",
  "src/sandbox",
  "src/http",
  "src/billing",
  "src/webhooks",
  "src/inference",
  "src/accounts",
  "src/alerts",
  "src/jobs",
  "src/dashboard",
  "src/main",
  "src/main.ts",
];

const root = join(import.meta.dir, "..");

/** Returns the position of a path's wing in WINGS. Throws if it is in none. */
function wingOf(path: string): number {
  const wing = WINGS.findIndex((name) => path === name || path.startsWith(`${name}/`));
  if (wing < 0) throw new Error(`${path} is in no wing: test/layers.test.ts lists them`);
  return wing;
}

async function sourceFiles(): Promise<string[]> {
  const files: string[] = [];
  for (const folder of ["src", "actors", "db"]) {
    for await (const file of new Glob("**/*.{ts,tsx}").scan(join(root, folder))) {
      files.push(join(folder, file));
    }
  }
  return files.sort();
}

async function relativeImports(file: string): Promise<string[]> {
  const source = await Bun.file(join(root, file)).text();
  const specifiers = [
    ...source.matchAll(/(?:from|import)\s*\(?\s*["'](\.[^"']+)["']/g),
    ...source.matchAll(/import\.meta\.resolve\(["'](\.[^"']+)["']\)/g),
  ];
  return specifiers.map(([, path]) => relative(root, normalize(join(root, dirname(file), path!))));
}

test("no file imports from a higher wing", async () => {
  const faults: string[] = [];
  for (const file of await sourceFiles()) {
    for (const imported of await relativeImports(file)) {
      if (wingOf(imported) > wingOf(file)) faults.push(`${file} imports ${imported}`);
    }
  }
  expect(faults).toEqual([]);
});

test("the dashboard's client, which runs in browsers, imports only pure definitions", async () => {
  const faults: string[] = [];
  for (const file of await sourceFiles()) {
    if (!file.startsWith("src/dashboard/web/")) continue;
    for (const imported of await relativeImports(file)) {
      if (!/^src\/(?:dashboard\/web|lib)\/|^package\.json$/.test(imported)) {
        faults.push(`${file} imports ${imported}`);
      }
    }
  }
  expect(faults).toEqual([]);
});

test("each wing has a README of at most 15 lines", async () => {
  for (const wing of WINGS.filter((name) => /^src\/\w+$/.test(name))) {
    const readme = Bun.file(join(root, wing, "README.md"));
    expect({ wing, hasReadme: await readme.exists() }).toEqual({ wing, hasReadme: true });
    expect((await readme.text()).trim().split("\n").length).toBeLessThanOrEqual(15);
  }
});

test("actors reach neither the network, nor the clock, nor randomness but through what they are handed", async () => {
  const forbidden =
    /\b(?:fetch\(|Date\.now|new Date\(\)|Math\.random|setTimeout|setInterval|process\.|Bun\.|crypto\.)/;
  const faults: string[] = [];
  for (const file of (await sourceFiles()).filter((path) => path.startsWith("actors/"))) {
    const source = await Bun.file(join(root, file)).text();
    if (forbidden.test(source)) faults.push(`${file}: ${forbidden.exec(source)![0]}`);
  }
  expect(faults).toEqual([]);
});

test("only the configuration and the entry points read the environment", async () => {
  const allowed = [
    ...[/^src\/main\.ts$/, /^src\/main\/start\/health-probe\.ts$/, /^src\/main\/(?:bin|cli)\//],
    // Runs in browsers; a program that it shows reads the environment.
    /^src\/dashboard\/web\/playground\//,
  ];
  const faults: string[] = [];
  for (const file of await sourceFiles()) {
    if (allowed.some((pattern) => pattern.test(file))) continue;
    if ((await Bun.file(join(root, file)).text()).includes("process.env")) faults.push(file);
  }
  expect(faults).toEqual([]);
});

/** Words of vendors' wires: members of their chunks, answers and usages, and names of their events. */
const VENDOR_WORDS =
  /\b(?:x_groq|reasoning_content|prompt_cache_hit_tokens|num_cached_tokens|cache_creation_\w+|cache_read_\w+|content_block\w*|message_(?:start|delta|stop)|insufficient_system_resource)\b/;
/**
 * Words of the client's wire, which the endpoint's renderer and its published schema alone put into an answer.
 * The playground is a client.
 */
/** Ids of operations, such as chat.completions.create, are no words of a chunk. */
const CLIENT_WORDS = /chat\.completion(?!s)|finish_reason/;
const SPEAKS_TO_CLIENTS =
  /^src\/inference\/endpoints\/chat-completions\/(?:cache-format|render-answer|schema)\.ts$|^src\/dashboard\/web\/playground\//;
/** One vendor's wire is that of clients, too. */
const SPEAKS_TO_ANTHROPICS_CLIENTS =
  /^src\/inference\/endpoints\/messages\/(?:endpoint|cache-format|message-renderer|schema|whole-message)\.ts$/;

test("nothing outside the providers knows a vendor's chunk, and one file renders the client's", async () => {
  const faults: string[] = [];
  for (const file of await sourceFiles()) {
    // The importer reads the configuration of another gateway, which has words of vendors.
    if (
      /^src\/(?:providers|sandbox|main\/cli\/import|platform\/config\/provider-types)\//.test(file)
    )
      continue;
    const source = await Bun.file(join(root, file)).text();
    const isVendors = !SPEAKS_TO_ANTHROPICS_CLIENTS.test(file);
    const vendor = isVendors ? VENDOR_WORDS.exec(source)?.[0] : undefined;
    if (vendor !== undefined) faults.push(`${file}: ${vendor}`);
    const client = SPEAKS_TO_CLIENTS.test(file) ? undefined : CLIENT_WORDS.exec(source)?.[0];
    if (client !== undefined) faults.push(`${file}: ${client}`);
  }
  expect(faults).toEqual([]);
});

test("the layers above the providers reach no single wire format, but for what builds and examines them", async () => {
  const allowed = /^src\/(?:providers|sandbox|main)\b/;
  const faults: string[] = [];
  for (const file of await sourceFiles()) {
    if (allowed.test(file)) continue;
    for (const imported of await relativeImports(file)) {
      if (/^src\/(?:providers\/openai|sandbox)\//.test(imported)) {
        faults.push(`${file} imports ${imported}`);
      }
    }
  }
  expect(faults).toEqual([]);
});

/**
 * Steps of the paid call: each is called from the file that carries it out, so that no endpoint can leave
 * one out or do it in another way.
 */
const STEPS: readonly {
  readonly step: string;
  readonly calls: RegExp;
  readonly from: readonly string[];
}[] = [
  {
    step: "the rate windows of a key and its team",
    calls: /\brates\.take\(id\b/,
    from: ["src/inference/call/admission.ts"],
  },
  {
    step: "the fee, and the rule of own provider keys",
    calls: /\b(?:feeOfTerms|assertByokKeys)\(/,
    from: ["src/inference/call/admission.ts"],
  },
  {
    step: "the extension of a hold",
    calls: /\bmoney\.extend\(/,
    from: ["src/inference/call/call-charge.ts"],
  },
  { step: "a hold", calls: /\bmoney\.hold(?:Long)?\(/, from: ["src/inference/call/admission.ts"] },
  {
    step: "the candidates of a whole answer, and of a streamed one",
    calls: /\bnew Failover\(/,
    from: ["src/inference/call/stream/upstream.ts", "src/inference/call/whole-answer.ts"],
  },
  {
    step: "checkpoints and settlement",
    calls: /\bmoney\.(?:checkpoint|settle)\(/,
    from: ["src/inference/call/call-charge.ts"],
  },
  {
    step: "the event of a charge",
    calls: /\bevents\??\.ofCharge\(/,
    from: ["src/inference/call/call-charge.ts"],
  },
  {
    step: "what is kept under an idempotency key",
    calls: /\bidempotency\.storeEffect\(/,
    from: ["src/inference/call/call-charge.ts"],
  },
  {
    step: "retries and fallbacks",
    calls: /\bturn\("takeRetry"/,
    from: ["src/inference/call/routing/failover.ts"],
  },
  {
    step: "the price of usage",
    calls: /\bproviderCostFemto\(/,
    from: ["src/inference/call/call-charge.ts"],
  },
  {
    step: "headers of the route and the charge",
    calls: /\["x-gateway-(?:provider|model|max-tokens|cost|route-explain)"\] =/,
    from: ["src/inference/call/answer-headers.ts"],
  },
];

/** What an endpoint may use of the paid call: the words it is described in, and what runs it. */
const ENDPOINTS_USE =
  /^src\/inference\/call\/(?:batched-call|call|endpoint|run-call|free-call|guard\/call-guard|routing\/(?:plan-route|filter-by-support|plan-audio)|routing\/preferences|idempotency\/idempotency)\.ts$/;
/** What moves the answer, the time limits of a call and its money: the paid call does that for every endpoint. */
const OF_THE_CALL =
  /\b(?:ReadableStream|Failover|CallCharge|DeadlineQueue|setTimeout|answerHeaders|(?:money|admission|idempotency)\.\w+\()/;

test("an endpoint only describes itself: nothing in it runs a call, whole or streamed", async () => {
  const faults: string[] = [];
  const files = (await sourceFiles()).filter((path) => path.startsWith("src/inference/endpoints/"));
  for (const file of files) {
    const source = await Bun.file(join(root, file)).text();
    const ofTheCall = OF_THE_CALL.exec(source)?.[0];
    if (ofTheCall !== undefined) faults.push(`${file}: ${ofTheCall}`);
    for (const imported of await relativeImports(file)) {
      if (!imported.startsWith("src/inference/call/") || ENDPOINTS_USE.test(imported)) continue;
      faults.push(`${file} imports ${imported}`);
    }
  }
  expect(faults).toEqual([]);
});

test("each step of the paid call is called from one place", async () => {
  const found = STEPS.map(({ step }) => ({ step, from: [] as string[] }));
  for (const file of (await sourceFiles()).filter((path) => path.startsWith("src/"))) {
    const source = await Bun.file(join(root, file)).text();
    for (const [at, { calls }] of STEPS.entries()) {
      // The definition of a function is no call of it.
      if (calls.test(source.replaceAll(/export function \w+\(/g, ""))) found[at]!.from.push(file);
    }
  }
  expect(found).toEqual(STEPS.map(({ step, from }) => ({ step, from: [...from] })));
});

/** Where organizations share what is bounded, and the test that holds the share; the rule is in src/lib/fair-share.ts. */
const SHARED: Readonly<Record<string, string>> = {
  "src/jobs/batches/batch-owner.ts": "test/shares/places.ts",
  "src/inference/call/guard/model-moderation.ts": "test/shares/places.ts",
  "src/inference/call/routing/call-slots.ts": "test/shares/places.ts",
  "src/main/compose/endpoints.ts": "test/lib/fair-work-thread.test.ts",
  "src/main/compose/vector-stores.ts": "test/shares/places.ts",
  "src/main/compose/webhooks.ts": "test/shares/places.ts",
  // Rooms of half or less for one organization.
  "src/dashboard/live.ts": "test/shares/places.ts",
  "src/inference/endpoints/long-bodies.ts": "test/endpoints/long-bodies-kept.test.ts",
  "src/inference/endpoints/responses/response-store.ts": "test/shares/places.ts",
  "src/jobs/files/file-uploads.ts": "test/shares/places.ts",
  "src/jobs/files/threaded-check.ts": "test/files/threaded-check.test.ts",
  "src/jobs/fine-tuning/event-feed.ts": "test/shares/places.ts",
  "src/jobs/fine-tuning/job-owner.ts": "test/shares/places.ts",
  "src/http/body-budget.ts": "test/shares/places.ts",
  "src/http/call-bounds.ts": "test/shares/places.ts",
  "src/http/spooled-uploads.ts": "test/shares/places.ts",
  "src/lib/fair-share.ts": "test/lib/fair-share.test.ts",
  "src/lib/work-thread.ts": "test/lib/fair-work-thread.test.ts",
  "src/inference/responses/follow-events.ts": "test/shares/places.ts",
  "src/inference/tools/code-interpreter/python-pool.ts": "test/shares/places.ts",
  "src/inference/tools/mcp/mcp-session.ts": "test/shares/places.ts",
  // Of one answer.
  "src/inference/tools/tool-runs.ts": "test/tools/tool-loop.test.ts",
  "src/inference/tools/web-search/page-reader.ts": "test/shares/places.ts",
  "src/jobs/vector-stores/indexing.ts": "test/shares/places.ts",
  "src/jobs/vector-stores/vector-stores.ts": "test/shares/places.ts",
  "src/webhooks/delivery-writer.ts": "test/webhooks/tenants.test.ts",
  "src/webhooks/send-slots.ts": "test/shares/places.ts",
};

/** Classes named like bounds that need not be shared by that rule, and why. */
const OTHER_BOUNDS: Readonly<Record<string, string>> = {
  "src/platform/cluster/heartbeat-thread.ts":
    "HeartbeatThread serves the instance, no organization",
  "src/platform/cluster/parallel-slots.ts": "MemorySlots counts; CallSlots shares",
  "src/platform/cluster/redis/parallel-slots.ts": "RedisSlots counts; CallSlots shares",
  "src/lib/deadlines.ts": "DeadlineQueue holds timers, which wait for nothing",
  "src/billing/ledger/hold-queue.ts": "HoldQueue has a line for each account",
  "src/billing/ledger/hold-wait-queue.ts": "WaitQueue has a line for each account",
  "src/providers/fal/fal-provider.ts": "FalQueue is the provider's own",
  "src/sandbox/image/encode-picture.ts": "the sandbox's thread, which costs nothing",
  "src/providers/transport/connection-pool.ts":
    "ConnectionPool keeps idle connections; nobody waits",
};

const BOUND_CLASS =
  /\bclass \w*(?:Semaphore|Mutex|Queue|Pool|Slots|Gate|Budget|Room|Line|Lane|Thread|Throttle|Limiter)\b/;
const BOUND_MADE =
  /\bnew (?:FairSemaphore|SharedRoom|FairQueue|FairWorkThread|WorkThread|\w*Semaphore|\w*Mutex)\b/;
const BOUND_PACKAGE =
  /from "(?:p-limit|p-queue|async-mutex|async-sema|bottleneck|piscina|tinypool)"/;

test("whatever bounds the work of organizations shares it among them, and a test holds that", async () => {
  const faults: string[] = [];
  const used = new Set<string>();
  for (const file of await sourceFiles()) {
    if (file.startsWith("src/dashboard/web/")) continue;
    const source = await Bun.file(join(root, file)).text();
    if (BOUND_PACKAGE.test(source))
      faults.push(`${file} imports a queue that knows no organization`);
    if (!BOUND_CLASS.test(source) && !BOUND_MADE.test(source)) continue;
    used.add(file);
    const isOther = Object.hasOwn(OTHER_BOUNDS, file);
    if (!Object.hasOwn(SHARED, file) && !isOther) {
      faults.push(`${file} bounds something: use src/lib/fair-share.ts and name its test here`);
    }
    if (!isOther && !/fair-share\.ts"|FairWorkThread|CheckingThread|lib\/fair-share/.test(source)) {
      if (file !== "src/lib/fair-share.ts") faults.push(`${file} has a bound of its own`);
    }
  }
  for (const [file, test] of Object.entries(SHARED)) {
    if (!used.has(file)) faults.push(`${file} bounds nothing any more`);
    if (!(await Bun.file(join(root, test)).exists())) faults.push(`${test} is missing`);
  }
  for (const file of Object.keys(OTHER_BOUNDS)) {
    if (!used.has(file)) faults.push(`${file} bounds nothing any more`);
  }
  expect(faults).toEqual([]);
});
