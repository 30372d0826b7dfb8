import { useEffect, useState } from "preact/hooks";
import { signedOutBecause, startSession } from "./api.ts";
import { Field } from "./components/controls.tsx";
import { Form } from "./components/dialog.tsx";
import { Notice } from "./components/display.tsx";
import { PasskeyButton } from "./passkey-button.tsx";
import { useResource } from "./resource.ts";
import { dashboardUrl, gatewayUrl } from "./router.ts";

/**
 * False over plain http, except on localhost: browsers store no secure cookie there, so no session would
 * last.
 */
const canKeepSession = window.isSecureContext;

export function SignIn() {
  const [key, setKey] = useState("");
  const { data } = useResource<{ single_sign_on: string | null }>("sign_in");
  const provider = data?.single_sign_on ?? null;
  useEffect(() => {
    document.title = "Sign in · Model gateway";
  }, []);
  return (
    <div class="gate">
      <main>
        <div class="mark" />
        <h1>Sign in</h1>
        <p class="quiet">View your organization's spend and manage its keys.</p>
        {signedOutBecause.value !== undefined && (
          <Notice tone="warn">{signedOutBecause.value}</Notice>
        )}
        {!canKeepSession && (
          <Notice tone="warn">
            This page was opened over plain http, which cannot keep a session. Open it over https.
          </Notice>
        )}
        {provider !== null && (
          <a class="button primary sign-on" href={new URL("sign-on", dashboardUrl).href}>
            Sign in with {provider}
          </a>
        )}
        <PasskeyButton />
        <Form submit="Sign in" onSubmit={() => startSession("session", { key: key.trim() })}>
          <Field
            label="Management key"
            type="password"
            value={key}
            onInput={setKey}
            isRequired
            placeholder="gateway_mgmt_…"
            hint="Operators sign in with an operator key (gateway_op_…)."
            autocomplete="off"
          />
        </Form>
        <p class="under">
          On its first start, the gateway printed the keys to its terminal or wrote them to{" "}
          <code>first-keys.json</code> in its data folder. Programs use{" "}
          <code class="code">{new URL("v1", gatewayUrl).href}</code>. See the{" "}
          <a href={new URL("docs", gatewayUrl).href}>API reference</a>.
        </p>
      </main>
    </div>
  );
}
