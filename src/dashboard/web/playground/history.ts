import { effect, signal } from "@preact/signals";
import { session, signedOutBecause } from "../api.ts";
import { conversationId, type StoredConversation, storedConversation } from "./conversation.ts";

/*
 * Conversations in the browser's database, apart for each person in each organization. Signing out deletes those of
 * the person in all organizations. They never leave the browser.
 */

interface HistoryEntry extends StoredConversation {
  /** Id of the member or key whose session it is. */
  readonly owner: string;
  readonly title: string;
  /** Milliseconds since the epoch. */
  readonly savedAtMs: number;
}

export type HistoryItem = Pick<HistoryEntry, "id" | "title" | "savedAtMs">;

const DATABASE = "gateway-playground";
const STORE = "conversations";
const MAX_CONVERSATIONS = 50;
const MAX_TITLE_CHARACTERS = 80;
/** Longest conversation that is stored with its files, in characters. */
const MAX_CHARACTERS_WITH_FILES = 4_000_000;
const MAX_CHARACTERS = 8_000_000;

/** Conversations of the session, newest first. */
export const historyItems = signal<readonly HistoryItem[]>([]);
/** Why the last conversation was not stored. */
export const historyFault = signal<string>();

let database: Promise<IDBDatabase> | undefined;
let owner = "";
/** The owners as which the person can have stored conversations, by switching between organizations. */
let ownersOfPerson: readonly string[] = [];

effect(() => {
  const current = session.value;
  const [before, ownersBefore] = [owner, ownersOfPerson];
  owner = current?.kind === "organization" ? current.key.id : "";
  ownersOfPerson = [owner, ...(current?.person?.holders ?? []).map(({ id }) => id)];
  if (owner !== before) {
    historyItems.value = [];
    historyFault.value = undefined;
  }
  // A session that ends by itself keeps the conversations for the next one.
  const isSignOut = current === null && signedOutBecause.peek() === undefined;
  if (isSignOut)
    for (const one of ownersBefore) if (one !== "") void deleteAll(one).catch(() => {});
});

/** Loads the list of conversations. Without a database, as in some private windows, it stays empty. */
export async function loadHistory(): Promise<void> {
  const current = owner;
  const entries = await entriesOf(current).catch(() => []);
  if (owner !== current) return;
  historyItems.value = entries.map(({ id, title, savedAtMs }) => ({ id, title, savedAtMs }));
}

/** Stores the shown conversation, and removes the oldest ones above the limit. */
export async function saveConversation(): Promise<void> {
  const current = owner;
  const stored = storedConversation();
  if (current === "" || stored.turns.length === 0) return;
  try {
    const entry = entryOf(current, stored);
    if (entry === undefined) {
      historyFault.value = "This conversation is too long for the history.";
      return;
    }
    await inStore("readwrite", (store) => store.put(entry));
    const entries = await entriesOf(current);
    for (const { id } of entries.slice(MAX_CONVERSATIONS)) await deleteConversation(id);
    historyFault.value = undefined;
  } catch (error) {
    const isFull = error instanceof DOMException && error.name === "QuotaExceededError";
    historyFault.value = isFull
      ? "The browser has no room for this conversation. Delete older ones."
      : "The browser did not store this conversation.";
  }
  await loadHistory();
}

function entryOf(current: string, stored: StoredConversation): HistoryEntry | undefined {
  const title = stored.turns[0]!.text.trim().slice(0, MAX_TITLE_CHARACTERS) || "Files";
  const entry = { ...stored, owner: current, title, savedAtMs: Date.now() };
  const length = JSON.stringify(entry).length;
  if (length <= MAX_CHARACTERS_WITH_FILES) return entry;
  const turns = stored.turns.map((turn) => ({
    ...turn,
    attachments: turn.attachments.map((file) => ({ ...file, data: "" })),
    answers: turn.answers.map((answer) =>
      answer === null
        ? null
        : { ...answer, state: { ...answer.state, images: [], sound: undefined } },
    ),
  }));
  const small = { ...entry, turns };
  return JSON.stringify(small).length > MAX_CHARACTERS ? undefined : small;
}

export async function findConversation(id: string): Promise<StoredConversation | undefined> {
  const entry = await inStore<HistoryEntry | undefined>("readonly", (store) => store.get(id));
  return entry?.owner === owner ? entry : undefined;
}

export async function deleteConversation(id: string): Promise<void> {
  await inStore("readwrite", (store) => store.delete(id));
  if (id === conversationId.peek()) conversationId.value = crypto.randomUUID();
  await loadHistory();
}

export async function clearHistory(): Promise<void> {
  await deleteAll(owner);
  await loadHistory();
}

async function deleteAll(ofOwner: string): Promise<void> {
  for (const { id } of await entriesOf(ofOwner)) {
    await inStore("readwrite", (store) => store.delete(id));
  }
}

async function entriesOf(ofOwner: string): Promise<HistoryEntry[]> {
  const entries = await inStore<HistoryEntry[]>("readonly", (store) =>
    store.index("owner").getAll(ofOwner),
  );
  return entries.toSorted((a, b) => b.savedAtMs - a.savedAtMs);
}

async function inStore<Result = unknown>(
  mode: IDBTransactionMode,
  work: (store: IDBObjectStore) => IDBRequest,
): Promise<Result> {
  database ??= openDatabase();
  const opened = await database.catch((error: unknown) => {
    database = undefined;
    throw error;
  });
  return new Promise((resolve, reject) => {
    const transaction = opened.transaction(STORE, mode);
    const request = work(transaction.objectStore(STORE));
    transaction.oncomplete = () => resolve(request.result as Result);
    transaction.onerror = () => reject(transaction.error);
    transaction.onabort = () => reject(transaction.error);
  });
}

function openDatabase(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore(STORE, { keyPath: "id" }).createIndex("owner", "owner");
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(request.error);
  });
}
