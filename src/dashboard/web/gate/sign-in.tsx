import { useState } from "preact/hooks";
import { call, signedOutBecause, startSession } from "../api.ts";
import { Button, Field } from "../components/controls.tsx";
import { Form } from "../components/dialog.tsx";
import { Notice } from "../components/display.tsx";
import { PasskeyButton } from "../passkey-button.tsx";
import { useResource } from "../resource.ts";
import { dashboardUrl, gatewayUrl } from "../router.ts";
import { CodeField, Gate, useSecondFactor } from "./gate.tsx";

/** The answer of GET /dashboard/api/sign_in. */
interface SignInMethods {
  /** Name of the identity provider. Null without single sign-on. */
  readonly single_sign_on: string | null;
  /** Further identity providers. Absent from gateways that have none. */
  readonly providers?: readonly { readonly id: string; readonly name: string }[];
  /** True if keys can sign in. */
  readonly keys: boolean;
  /** True if the gateway sends mail. */
  readonly mail: boolean;
}

export function SignIn() {
  const { data } = useResource<SignInMethods>("sign_in");
  const [isForgotten, setForgotten] = useState(false);
  if (isForgotten) {
    return <ForgottenPassword isMailed={data?.mail ?? false} onBack={() => setForgotten(false)} />;
  }
  return (
    <Gate title="Sign in" lead="View your organization's spend and manage its keys.">
      {signedOutBecause.value !== undefined && (
        <Notice tone="warn">{signedOutBecause.value}</Notice>
      )}
      <AccountForm onForgotten={() => setForgotten(true)} />
      <PasskeyButton />
      {data?.single_sign_on && <SignOnLink path="sign-on" name={data.single_sign_on} />}
      {data?.providers?.map(({ id, name }) => (
        <SignOnLink key={id} path={`sign-on/${id}`} name={name} />
      ))}
      {data?.keys && <KeyForm />}
      <p class="under">
        Programs use <code class="code">{new URL("v1", gatewayUrl).href}</code>. See the{" "}
        <a href={new URL("docs", gatewayUrl).href}>API reference</a>.
      </p>
    </Gate>
  );
}

/** A link to the page of an identity provider. */
function SignOnLink({ path, name }: { readonly path: string; readonly name: string }) {
  return (
    <a class="button sign-on" href={new URL(path, dashboardUrl).href}>
      Sign in with {name}
    </a>
  );
}

function AccountForm({ onForgotten }: { onForgotten(): void }) {
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const factor = useSecondFactor();
  return (
    <>
      <Form
        submit="Sign in"
        onSubmit={() =>
          factor.attempt((code) => startSession("session/password", { email, password, code }))
        }
      >
        <Field
          label="Email"
          type="email"
          value={email}
          onInput={setEmail}
          isRequired
          autocomplete="username"
        />
        <Field
          label="Password"
          type="password"
          value={password}
          onInput={setPassword}
          isRequired
          autocomplete="current-password"
        />
        <CodeField {...factor} />
      </Form>
      <p class="beside">
        <Button variant="quiet" onClick={onForgotten}>
          Forgot your password?
        </Button>
      </p>
    </>
  );
}

function KeyForm() {
  const [key, setKey] = useState("");
  return (
    <details class="fold under">
      <summary>Sign in with a key</summary>
      <Form submit="Sign in with key" onSubmit={() => startSession("session", { key: key.trim() })}>
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
      <p class="hint">
        On its first start, the gateway printed the keys to its terminal or wrote them to{" "}
        <code>first-keys.json</code> in its data folder.
      </p>
    </details>
  );
}

interface ForgottenPasswordProps {
  /** True if the gateway sends mail. */
  readonly isMailed: boolean;
  onBack(): void;
}

function ForgottenPassword({ isMailed, onBack }: ForgottenPasswordProps) {
  const [email, setEmail] = useState("");
  const [isSent, setSent] = useState(false);
  const back = (
    <p class="beside">
      <Button variant="quiet" onClick={onBack}>
        Back to sign-in
      </Button>
    </p>
  );
  if (!isMailed) {
    return (
      <Gate title="Forgot your password?">
        <p class="message">
          This gateway sends no mail, so it cannot send you a link. Ask an operator of the gateway.
        </p>
        {back}
      </Gate>
    );
  }
  if (isSent) {
    return (
      <Gate title="Check your mail">
        <p class="message">
          If {email} has an account, a link for a new password is on its way. The link works once,
          for an hour.
        </p>
        {back}
      </Gate>
    );
  }
  return (
    <Gate title="Forgot your password?" lead="Get a link with which you set a new password.">
      <Form
        submit="Send link"
        onSubmit={async () => {
          await call("POST", "password/forgot", { body: { email } });
          setSent(true);
        }}
      >
        <Field
          label="Email"
          type="email"
          value={email}
          onInput={setEmail}
          isRequired
          autocomplete="username"
        />
      </Form>
      {back}
    </Gate>
  );
}
