import { useState } from "preact/hooks";
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
const GRACES = [
  ["0", "At once"],
  ["1", "In an hour"],
  ["24", "In a day"],
  ["168", "In 7 days"],
] as const;

/**
 * Replaces a key by one with the same settings. The replacement is made and shown first, and takes the name over
 * last: wherever this stops, no program has lost its key, and the list shows both.
 */
export function KeyRotation({ rotated, onChanged, onClose }: RotationProps) {
  const [graceHours, setGraceHours] = useState("24");
  const [secret, setSecret] = useState<string>();
  const [fault, setFault] = useState<string>();
  const [isRunning, setRunning] = useState(false);
  const rotate = async () => {
    const nowMs = Date.now();
    const replacement = await call<{ id: string; key: string }>("POST", "v1/keys", {
      body: { ...settingsOf(rotated, nowMs), name: named(rotated, "replacement,", nowMs) },
    });
    setSecret(replacement.key);
    setRunning(true);
    try {
      await end(rotated, Number(graceHours) * HOUR_MS, nowMs);
      await call("PATCH", `v1/keys/${replacement.id}`, { body: { name: rotated.name } });
    } catch (error) {
      setFault(messageOf(error));
      // The dialog may have been closed meanwhile.
      toast(`${rotated.name} was not rotated to the end.`, true);
    } finally {
      setRunning(false);
    }
    onChanged();
  };
  if (secret !== undefined) {
    return (
      <Dialog title={`Replacement of ${rotated.name}`} onClose={onClose}>
        {fault !== undefined && (
          <Notice tone="bad">
            The replacement works, but the rotation did not come to its end: {fault} Look at both
            keys in the list; the old one may still work.
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
          A new key with the same name, limits, budgets and scopes is made and shown once. What was
          spent with the old key stays with it: budgets of the new one count from zero.
        </p>
        <Choice
          label="The old key ends"
          value={graceHours}
          options={GRACES}
          onChange={setGraceHours}
        />
        {graceHours === "0" && (
          <Notice tone="warn">
            Programs that use the old key are refused until they have the new one.
          </Notice>
        )}
      </Form>
    </Dialog>
  );
}

/** Also under another name, which the replacement takes over. */
async function end(rotated: ListedKey, graceMs: number, nowMs: number): Promise<void> {
  const path = `v1/keys/${rotated.id}`;
  if (graceMs === 0) {
    await call("DELETE", path);
    return;
  }
  const untilMs = nowMs + graceMs;
  const endsBefore = rotated.expires_at !== null && Date.parse(rotated.expires_at) <= untilMs;
  const name = named(rotated, "replaced", nowMs);
  const expiry = endsBefore ? {} : { expires_at: new Date(untilMs).toISOString() };
  await call("PATCH", path, { body: { name, ...expiry } });
}

const MAX_KEPT_CHARACTERS = 200;

/** Names are unique, so it has the time in it. */
function named({ name }: ListedKey, how: string, nowMs: number): string {
  const at = new Date(nowMs).toISOString().slice(0, 19).replace("T", " ");
  return `${name.slice(0, MAX_KEPT_CHARACTERS).toWellFormed()} (${how} ${at})`;
}

function settingsOf(key: ListedKey, nowMs: number) {
  const isToCome = key.expires_at !== null && Date.parse(key.expires_at) > nowMs;
  return {
    scopes: key.scopes,
    rate_limit_rpm: key.rate_limit_rpm,
    rate_limit_tpm: key.rate_limit_tpm,
    daily_budget_usd: key.daily_budget_usd,
    monthly_budget_usd: key.monthly_budget_usd,
    budget_includes_byok: key.budget_includes_byok,
    allowed_models: key.allowed_models,
    ...(isToCome && { expires_at: key.expires_at }),
  };
}
