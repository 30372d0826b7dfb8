import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Role } from "../../../lib/roles.ts";
import { ROLE_RIGHTS } from "../../../lib/roles.ts";
import { ApiError, call, endSession, startSession } from "../api.ts";
import { Field, Link } from "../components/controls.tsx";
import { Form, messageOf } from "../components/dialog.tsx";
import { Notice, Skeleton } from "../components/display.tsx";
import { date } from "../format.ts";
import { roleTitle } from "../rights.ts";
import { takeFragment } from "../router.ts";
import { CodeField, Gate, leaveGate, NewPassword, useSecondFactor } from "./gate.tsx";

interface LinkPageProps {
  /** The secret of the link. Empty if the address had none. */
  readonly token: string;
}

const PAGES: Readonly<Record<string, ComponentType<LinkPageProps>>> = {
  join: Join,
  welcome: Welcome,
  "new-password": NewPasswordPage,
};

export function isLinkPage(name: string): boolean {
  return Object.hasOwn(PAGES, name);
}

/** A page to which a link that works once leads. Its secret leaves the address bar and stays in memory. */
export function LinkPage({ name }: { readonly name: string }) {
  const [token] = useState(takeFragment);
  const Shown = PAGES[name]!;
  if (token === "") {
    return (
      <DeadLink>
        The address has no secret after the sign #. Open the link again from the message in which
        you got it. A page that was reloaded has lost the secret.
      </DeadLink>
    );
  }
  return <Shown token={token} />;
}

function DeadLink({ children }: { readonly children: ComponentChildren }) {
  return (
    <Gate title="This link does not work">
      <p class="message">{children}</p>
      <p class="under">
        <Link page="">Sign in</Link>
      </p>
    </Gate>
  );
}

/** Returns true if the link was used, was withdrawn or has expired, or has never been one. */
function isDead(error: unknown): boolean {
  return error instanceof ApiError && ["link_expired", "invalid_body"].includes(error.code);
}

/** The answer of POST /dashboard/api/invitation. */
interface Invitation {
  readonly email: string;
  readonly organization: string;
  readonly role: Role;
  readonly has_account: boolean;
  readonly expires_at: string;
}

function Join({ token }: LinkPageProps) {
  const [invitation, setInvitation] = useState<Invitation>();
  const [fault, setFault] = useState<unknown>();
  useEffect(() => {
    call<Invitation>("POST", "invitation", { body: { token } }).then(setInvitation).catch(setFault);
  }, [token]);
  if (isDead(fault)) {
    return (
      <DeadLink>
        The invitation was accepted, replaced or withdrawn, or is older than 7 days. If you have
        accepted it, sign in. Otherwise ask the person who invited you for a new one.
      </DeadLink>
    );
  }
  if (invitation === undefined) {
    return (
      <Gate title="Invitation">
        {fault === undefined ? <Skeleton /> : <Notice tone="bad">{messageOf(fault)}</Notice>}
      </Gate>
    );
  }
  const { organization, role, email, expires_at: expiresAt } = invitation;
  return (
    <Gate title={`Join ${organization}`}>
      <dl class="facts">
        <dt>Email</dt>
        <dd>{email}</dd>
        <dt>Role</dt>
        <dd>
          <span class="strong">{roleTitle(role)}</span>
          <span class="sub">{ROLE_RIGHTS[role].description}</span>
        </dd>
        <dt>Valid until</dt>
        <dd>{date(expiresAt)}</dd>
      </dl>
      {invitation.has_account ? (
        <JoinWithAccount token={token} />
      ) : (
        <JoinAsNew token={token} email={email} />
      )}
    </Gate>
  );
}

function JoinAsNew({ token, email }: LinkPageProps & { readonly email: string }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  return (
    <Form
      submit="Create account and join"
      onSubmit={async () => {
        await startSession("invitation/accept", { token, name: name.trim(), password });
        leaveGate();
      }}
    >
      <Username email={email} />
      <Field label="Name" value={name} onInput={setName} isRequired autocomplete="name" />
      <NewPassword value={password} onInput={setPassword} />
    </Form>
  );
}

/** The address for password managers, which look for a field. */
function Username({ email }: { readonly email: string }) {
  return <input type="email" value={email} autocomplete="username" readOnly hidden />;
}

function JoinWithAccount({ token }: LinkPageProps) {
  const [password, setPassword] = useState("");
  const factor = useSecondFactor();
  const join = async () => {
    const isJoined = await factor.attempt((code) =>
      startSession("invitation/accept", { token, password, code }),
    );
    if (isJoined) leaveGate();
  };
  return (
    <Form submit="Sign in and join" onSubmit={join}>
      <Field
        label="Password of your account"
        type="password"
        value={password}
        onInput={setPassword}
        isRequired
        autocomplete="current-password"
      />
      <CodeField {...factor} />
    </Form>
  );
}

/** Creates the account of the first operator. */
function Welcome({ token }: LinkPageProps) {
  const [email, setEmail] = useState("");
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [isExpired, setExpired] = useState(false);
  const create = async () => {
    try {
      await startSession("first_operator", { token, email, name: name.trim(), password });
      leaveGate();
    } catch (error) {
      if (!(error instanceof ApiError && error.code === "link_expired")) throw error;
      setExpired(true);
    }
  };
  if (isExpired) {
    return (
      <DeadLink>
        The link was used, or another one has replaced it. If your account exists, sign in. If not,
        restart the gateway: it prints a new link to its terminal.
      </DeadLink>
    );
  }
  return (
    <Gate
      title="Welcome"
      lead="Create the first account. It operates this gateway and owns its first organization."
    >
      <Form submit="Create account" onSubmit={create}>
        <Field
          label="Email"
          type="email"
          value={email}
          onInput={setEmail}
          isRequired
          autocomplete="username"
        />
        <Field label="Name" value={name} onInput={setName} isRequired autocomplete="name" />
        <NewPassword value={password} onInput={setPassword} />
      </Form>
    </Gate>
  );
}

/** Sets a new password, which ends all sessions of the account. */
function NewPasswordPage({ token }: LinkPageProps) {
  const [password, setPassword] = useState("");
  const [state, setState] = useState<"open" | "changed" | "expired">("open");
  const change = async () => {
    try {
      await call("POST", "password/reset", { body: { token, password } });
      endSession();
      setState("changed");
    } catch (error) {
      if (!(error instanceof ApiError && error.code === "link_expired")) throw error;
      setState("expired");
    }
  };
  if (state === "expired") {
    return (
      <DeadLink>
        The link was used, or is older than an hour. Choose "Forgot your password?" at the sign-in
        to get a new one.
      </DeadLink>
    );
  }
  if (state === "changed") {
    return (
      <Gate title="Password changed">
        <p class="message">All earlier sessions of your account have ended.</p>
        <p class="under">
          <Link page="">Sign in with the new password</Link>
        </p>
      </Gate>
    );
  }
  return (
    <Gate title="Set a new password">
      <Form submit="Set password" onSubmit={change}>
        <NewPassword label="New password" value={password} onInput={setPassword} />
      </Form>
    </Gate>
  );
}
