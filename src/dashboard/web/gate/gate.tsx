import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../api.ts";
import { Field } from "../components/controls.tsx";
import { Notice } from "../components/display.tsx";
import { hrefOf, navigate } from "../router.ts";

/**
 * False over plain http, except on localhost: browsers store no secure cookie there, so no session would
 * last.
 */
const canKeepSession = window.isSecureContext;

interface GateProps {
  readonly title: string;
  readonly lead?: ComponentChildren;
  readonly children: ComponentChildren;
}

/** The frame of pages outside of a session. */
export function Gate({ title, lead, children }: GateProps) {
  useEffect(() => {
    document.title = `${title} · Model gateway`;
  }, [title]);
  return (
    <div class="gate">
      <main>
        <div class="mark" />
        <h1>{title}</h1>
        {lead !== undefined && <p class="quiet">{lead}</p>}
        {!canKeepSession && (
          <Notice tone="warn">
            This page was opened over plain http, which cannot keep a session. Open it over https.
          </Notice>
        )}
        {children}
      </main>
    </div>
  );
}

/** Leaves a page outside of a session for the first page. */
export function leaveGate(): void {
  navigate(hrefOf(""));
}

/** The shortest password that the gateway accepts, in characters. */
export const MIN_PASSWORD_CHARACTERS = 12;

interface NewPasswordProps {
  readonly value: string;
  readonly label?: string;
  onInput(value: string): void;
}

/** The field of a new password. */
export function NewPassword({ value, label = "Password", onInput }: NewPasswordProps) {
  return (
    <Field
      label={label}
      type="password"
      value={value}
      onInput={onInput}
      isRequired
      minLength={MIN_PASSWORD_CHARACTERS}
      hint={`At least ${MIN_PASSWORD_CHARACTERS} characters`}
      autocomplete="new-password"
    />
  );
}

interface SecondFactor {
  /** The code. Undefined until the gateway has asked for it. */
  readonly code: string | undefined;
  setCode(code: string): void;
  /** Runs a sign-in with the code. Returns false if the gateway asks for the code, which the page then shows. */
  attempt(signIn: (code: string | undefined) => Promise<void>): Promise<boolean>;
}

/** The code of a second factor, for which the gateway asks after it has verified the password. */
export function useSecondFactor(): SecondFactor {
  const [code, setCode] = useState<string>();
  return {
    code,
    setCode,
    async attempt(signIn) {
      try {
        await signIn(code);
        return true;
      } catch (error) {
        const isRequested = error instanceof ApiError && error.code === "second_factor_required";
        if (!isRequested || code !== undefined) throw error;
        setCode("");
        return false;
      }
    },
  };
}

/** The field of the code, if the gateway has asked for it. */
export function CodeField({ code, setCode }: Pick<SecondFactor, "code" | "setCode">) {
  if (code === undefined) return null;
  return (
    <Field
      label="Code of your second factor"
      value={code}
      onInput={setCode}
      isRequired
      isFocused
      inputMode="numeric"
      hint="6 digits from your authenticator app"
      autocomplete="one-time-code"
    />
  );
}
