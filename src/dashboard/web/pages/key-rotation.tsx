import { useState } from "preact/hooks";
import { SETTING_ROWS } from "../../../lib/api-key-record.ts";
import { call } from "../api.ts";
import { Choice } from "../components/controls.tsx";
import { Dialog, Form, messageOf, toast } from "../components/dialog.tsx";
import { Notice } from "../components/display.tsx";
import { SecretOnce } from "./key-dialog.tsx";
import type { ListedKey } from "./keys.tsx";

interface RotationProps {
  readonly rotated: ListedKey;
  onChanged(): void;
  onClose(): void;
}

const HOUR_MS = 3_600_000;
const GRACE_PERIODS = [
  ["0", "Immediately"],
  ["1", "In an hour"],
  ["24", "In a day"],
  ["168", "In 7 days"],
] as const;

/**
 * Replaces a key by one with the same settings. It creates and shows the replacement first, and renames it
 * last. If a step fails, no program has lost its key, and the list shows both.
 */
export function KeyRotation({ rotated, onChanged, onClose }: RotationProps) {
  const [graceHours, setGraceHours] = useState("24");
  const [secret, setSecret] = useState<string>();
  const [errorText, setErrorText] = useState<string>();
  const [isRunning, setRunning] = useState(false);
  const rotate = async () => {
    const nowMs = Date.now();
    // Another person may have restricted the key since the list was loaded.
    const current = await call<ListedKey>("GET", `v1/keys/${rotated.id}`);
    const replacement = await call<{ id: string; key: string }>("POST", "v1/keys", {
      body: { ...settingsOf(current, nowMs), name: nameWithTime(rotated, "replacement,", nowMs) },
    });
    setSecret(replacement.key);
    setRunning(true);
    try {
      await end(rotated, Number(graceHours) * HOUR_MS, nowMs);
      await call("PATCH", `v1/keys/${replacement.id}`, { body: { name: rotated.name } });
    } catch (error) {
      setErrorText(messageOf(error));
      // The dialog may have been closed in the meantime.
      toast(`The rotation of ${rotated.name} failed.`, true);
    } finally {
      setRunning(false);
    }
    onChanged();
  };
  if (secret !== undefined) {
    return (
      <Dialog title={`Replacement of ${rotated.name}`} onClose={onClose}>
        {errorText !== undefined && (
          <Notice tone="bad">
            The replacement works, but the rotation failed: {errorText} Check both keys in the list.
            The old key may still work.
          </Notice>
        )}
        <SecretOnce secret={secret} isBusy={isRunning} onDone={onClose} />
      </Dialog>
    );
  }
  return (
    <Dialog title={`Rotate ${rotated.name}`} onClose={onClose}>
      <Form submit="Rotate key" onCancel={onClose} onSubmit={rotate}>
        <p>
          A new key with the same name, limits, budgets and scopes is created and shown once. The
          spend of the old key is not transferred: budgets of the new key start at zero.
        </p>
        <Choice
          label="Old key expires"
          value={graceHours}
          options={GRACE_PERIODS}
          onChange={setGraceHours}
        />
        {graceHours === "0" && (
          <Notice tone="warn">Requests with the old key are rejected immediately.</Notice>
        )}
      </Form>
    </Dialog>
  );
}

/** Ends the old key and renames it, so that the replacement can take its name. */
async function end(rotated: ListedKey, graceMs: number, nowMs: number): Promise<void> {
  const path = `v1/keys/${rotated.id}`;
  if (graceMs === 0) {
    await call("DELETE", path);
    return;
  }
  const untilMs = nowMs + graceMs;
  const endsBefore = rotated.expires_at !== null && Date.parse(rotated.expires_at) <= untilMs;
  const name = nameWithTime(rotated, "replaced", nowMs);
  const expiry = endsBefore ? {} : { expires_at: new Date(untilMs).toISOString() };
  await call("PATCH", path, { body: { name, ...expiry } });
}

const MAX_NAME_PREFIX_CHARACTERS = 200;

/** Returns a name with the time in it, because names are unique. */
function nameWithTime({ name }: ListedKey, suffix: string, nowMs: number): string {
  const time = new Date(nowMs).toISOString().slice(0, 19).replace("T", " ");
  return `${name.slice(0, MAX_NAME_PREFIX_CHARACTERS).toWellFormed()} (${suffix} ${time})`;
}

/** Returns the settings of the replacement: those of the key, without an expiry in the past. */
function settingsOf(key: ListedKey, nowMs: number) {
  const isExpired = key.expires_at !== null && Date.parse(key.expires_at) <= nowMs;
  const settings = SETTING_ROWS.filter(
    ({ field }) => field !== "is_active" && !(field === "expires_at" && isExpired),
  );
  return Object.fromEntries(settings.map(({ field }) => [field, key[field]]));
}
