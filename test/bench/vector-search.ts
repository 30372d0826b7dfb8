import "../support/preload.ts";
import { connectDatabase, type Database } from "../../db/client.ts";
import { createOrganization } from "../../db/queries/organizations.ts";
import { insertChunks } from "../../db/queries/vector-store-indexing.ts";
import { insertVectors } from "../../db/queries/vector-store-vectors.ts";
import { prepareOrganization } from "../../src/accounts/organizations/organizations.ts";
import { quantised } from "../../src/jobs/vector-stores/quantised-vector.ts";
import { searchVectorStores } from "../../src/jobs/vector-stores/search.ts";
import { createTestDatabase } from "../support/database.ts";

/*
 * How long a search of a vector store takes by its number of chunks, with embeddings and without, and how many of
 * the ten nearest chunks it finds:
 *
 *   bun test/bench/vector-search.ts [chunks…]
 *
 * The embeddings are random ones around 200 subjects, each of the length 1536; a question is near one subject.
 */

const DIMENSIONS = 1_536;
const SUBJECTS = 200;
const stated = process.argv.slice(2).map(Number);
const SIZES = stated.length > 0 ? stated : [200, 1_000, 5_000, 20_000];
const QUESTIONS = 20;
const NEAREST = 10;
const CHUNKS_A_STEP = 200;
/** How far a chunk lies from its subject. */
const SPREAD = 1;

const random = seeded(7);
const subjects = Array.from({ length: SUBJECTS }, () => gaussian());

function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return (state + 0.5) / 2 ** 32;
  };
}

function gaussian(): Float32Array {
  return Float32Array.from(
    { length: DIMENSIONS },
    () => Math.sqrt(-2 * Math.log(random())) * Math.cos(2 * Math.PI * random()),
  );
}

function near(subject: Float32Array): Float32Array {
  const noise = gaussian();
  return subject.map((value, at) => value + SPREAD * noise[at]!);
}

function cosine(a: Float32Array, b: Float32Array): number {
  let [product, ofA, ofB] = [0, 0, 0];
  for (let at = 0; at < DIMENSIONS; at++) {
    product += a[at]! * b[at]!;
    ofA += a[at]! ** 2;
    ofB += b[at]! ** 2;
  }
  return product / Math.sqrt(ofA * ofB);
}

/** Rare words of a vocabulary of 20,000, after Zipf. */
function words(count: number): string {
  return Array.from({ length: count }, () => `word${Math.floor(20_000 ** random())}`).join(" ");
}

async function fill(sql: Database, organizationId: string, size: number) {
  const id = `vs_${size.toString().padStart(32, "0")}`;
  const [store] = await sql<{ number: bigint }[]>`
    INSERT INTO vector_stores (id, organization_id, created_at, last_active_at)
    VALUES (${id}, ${organizationId}, now(), now()) RETURNING number`;
  const fileId = `file_${size.toString().padStart(32, "0")}`;
  await sql`INSERT INTO files (id, organization_id, bytes, filename, purpose, status, created_at, content_type, storage_key)
    VALUES (${fileId}, ${organizationId}, 1, 'a.txt', 'assistants', 'processed', now(), 'text/plain', ${fileId})`;
  const [file] = await sql<{ number: bigint }[]>`
    INSERT INTO vector_store_files (id, organization_id, vector_store_id, file_id, status, embedding_model, attributes,
      max_chunk_tokens, overlap_tokens, chunks, created_at)
    VALUES (${`vsf_${size}`}, ${organizationId}, ${id}, ${fileId}, 'in_progress', 'model', '{}', 800, 400, ${size}, now())
    RETURNING number`;
  const embeddings: Float32Array[] = [];
  for (let first = 0; first < size; first += CHUNKS_A_STEP) {
    const step = Array.from({ length: CHUNKS_A_STEP }, (_, at) =>
      near(subjects[(first + at) % SUBJECTS]!),
    );
    embeddings.push(...step);
    await sql.begin(async (transaction) => {
      const chunks = step.map(() => ({ text: words(400), words: words(400) }));
      const place = { number: file!.number, storeNumber: store!.number };
      await insertChunks(transaction, place, first, chunks);
      await insertVectors(transaction, file!.number, first, step.map(quantised));
    });
  }
  await sql`UPDATE vector_store_files SET status = 'completed' WHERE number = ${file!.number.toString()}::bigint`;
  return { id, embeddings };
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

async function measure(sql: Database, organizationId: string, size: number): Promise<void> {
  const { id, embeddings } = await fill(sql, organizationId, size);
  const scope = { organizationId, vectorStoreIds: [id], filter: undefined };
  const options = { filter: undefined, maxResults: NEAREST, scoreThreshold: 0 };
  const row: Record<string, number> = { chunks: size };
  for (const [name, weights, isEmbedded] of [
    ["words", { text: 1, embedding: 0 }, false],
    ["embeddings", { text: 0, embedding: 1 }, true],
    ["both", { text: 1, embedding: 1 }, true],
  ] as const) {
    const [took, shares]: [number[], number[]] = [[], []];
    for (let n = 0; n < QUESTIONS; n++) {
      const question = near(subjects[(n * 7) % SUBJECTS]!);
      const embedded = isEmbedded ? { model: "model", embeddings: [question] } : undefined;
      const startedMs = performance.now();
      const found = await searchVectorStores(
        sql,
        scope,
        [words(8)],
        { ...options, weights },
        embedded,
      );
      took.push(performance.now() - startedMs);
      const order = embeddings
        .map((embedding, position) => ({ position, cosine: cosine(question, embedding) }))
        .sort((a, b) => b.cosine - a.cosine)
        .slice(0, NEAREST);
      const places = new Set(found.map(({ position }) => position));
      shares.push(order.filter(({ position }) => places.has(position)).length / NEAREST);
    }
    row[`${name}, ms`] = Math.round(median(took));
    if (name === "embeddings") row["nearest found"] = shares.reduce((a, b) => a + b) / QUESTIONS;
  }
  console.table([row]);
}

const database = await createTestDatabase();
const sql = connectDatabase(database, { poolSize: 2, applicationName: "bench" });
const { organization } = prepareOrganization(
  { name: "Bench", plan: "free", startingCreditNano: 0n },
  Date.now(),
);
await sql.begin((transaction) => createOrganization(transaction, organization));
for (const size of SIZES) await measure(sql, organization.id, size);
await sql.end();
await database.drop();
