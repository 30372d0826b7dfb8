import { useState } from "preact/hooks";
import { messageOf } from "./components/dialog.tsx";
import { Notice } from "./components/display.tsx";
import { canUsePasskeys, signInWithPasskey } from "./passkeys.ts";

/** The button that signs in with a passkey. Browsers without passkeys do not show it. */
export function PasskeyButton() {
  const [isBusy, setBusy] = useState(false);
  const [fault, setFault] = useState<unknown>();
  if (!canUsePasskeys) return null;
  const signIn = async () => {
    setBusy(true);
    setFault(undefined);
    await signInWithPasskey().catch(setFault);
    setBusy(false);
  };
  return (
    <>
      <button
        type="button"
        class="button sign-on"
        disabled={isBusy}
        aria-busy={isBusy}
        onClick={() => void signIn()}
      >
        Use a passkey
      </button>
      {fault !== undefined && <Notice tone="bad">{messageOf(fault)}</Notice>}
    </>
  );
}
