import { useEffect, useRef, useState } from "preact/hooks";
import { type SessionPerson, session, signOut, startSession } from "./api.ts";
import { CommandPalette } from "./command-palette.tsx";
import { Button, Choice, Link } from "./components/controls.tsx";
import { messageOf, Toasts, toast } from "./components/dialog.tsx";
import { Badge, Empty, Notice, PageHead } from "./components/display.tsx";
import { Icon } from "./components/icon.tsx";
import { isLinkPage, LinkPage } from "./gate/link-pages.tsx";
import { SignIn } from "./gate/sign-in.tsx";
import { isLive } from "./live.ts";
import { type DashboardPage, pagesOf, pageTitle } from "./pages/table.ts";
import { useResource } from "./resource.ts";
import { roleTitle } from "./rights.ts";
import { hrefOf, navigate, pageName, sectionName } from "./router.ts";
import { SessionEndWarning } from "./session-end.tsx";
import { chooseTheme, type Theme, theme } from "./theme.ts";
import { ViewBanner } from "./view.tsx";

/** Id of the operator's role among the holders of a person. */
const OPERATOR = "operator";

export function App() {
  const currentSession = session.value;
  const requestedPage = pageName.value;
  if (isLinkPage(requestedPage)) return <LinkPage key={requestedPage} name={requestedPage} />;
  if (currentSession === undefined) return null;
  if (currentSession === null) return <SignIn />;
  const pages = pagesOf(currentSession);
  const section = sectionName.value;
  const matched = pages.find(
    ({ name, sections = [""] }) => name === requestedPage && sections.includes(section),
  );
  // Operators and organizations have different first pages.
  const shownPage = matched ?? (requestedPage === "" ? pages[0] : undefined);
  return (
    <>
      {/* Another organization has other data, so nothing of the frame stays. */}
      <Frame
        key={`${currentSession.person?.member_id ?? currentSession.key.id} ${currentSession.viewing?.id}`}
        pages={pages}
        current={shownPage}
      />
      <Toasts />
    </>
  );
}

interface FrameProps {
  readonly pages: readonly DashboardPage[];
  readonly current: DashboardPage | undefined;
}

function Frame({ pages, current }: FrameProps) {
  const [isOpen, setOpen] = useState(false);
  const content = useRef<HTMLElement>(null);
  const close = () => setOpen(false);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => event.key === "Escape" && close();
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return (
    <div class="frame">
      <button type="button" class="button skip" onClick={() => content.current?.focus()}>
        Skip to content
      </button>
      <header class="top">
        <span class="brand">
          <span class="mark" />
          Model gateway
        </span>
        <button
          type="button"
          class="button"
          aria-expanded={isOpen}
          aria-controls="side"
          onClick={() => setOpen(!isOpen)}
        >
          Menu
        </button>
      </header>
      <div id="side" class={isOpen ? "side open" : "side"}>
        <span class="brand">
          <span class="mark" />
          Model gateway
        </span>
        <CommandPalette />
        <Menu {...{ pages, current, onFollow: close }} />
        <Foot />
      </div>
      <main ref={content} tabIndex={-1}>
        <ViewBanner />
        <SessionEndWarning />
        {session.value?.test_payments === true && <TestPayments />}
        {current === undefined ? <NotFound /> : <current.Page />}
      </main>
    </div>
  );
}

interface MenuProps extends FrameProps {
  onFollow(): void;
}

/** The menu of pages, in groups. */
function Menu({ pages, current, onFollow }: MenuProps) {
  const listed = pages.filter(({ isUnlisted }) => !isUnlisted);
  const groups = [...new Set(listed.map(({ group }) => group))];
  return (
    <nav aria-label="Pages">
      {groups.map((group) => (
        <div key={group} class="group">
          {group !== undefined && <p>{group}</p>}
          {listed
            .filter((page) => page.group === group)
            .map((page) => (
              <Link
                key={page.name}
                page={page.name}
                isCurrent={page === current}
                onFollow={onFollow}
              >
                <Icon name={page.icon} />
                {pageTitle(page)}
              </Link>
            ))}
        </div>
      ))}
    </nav>
  );
}

function TestPayments() {
  return (
    <div class="test-payments">
      <Notice tone="warn">
        Test payments are enabled: top-ups add credit without a real payment. Before customers use
        this gateway, set <code>STRIPE_SECRET_KEY</code> or <code>GATEWAY_TEST_PAYMENTS=false</code>
        .
      </Notice>
    </div>
  );
}

function Foot() {
  return (
    <div class="foot">
      <span class={isLive.value ? "live on" : "live"}>{isLive.value ? "Live" : "Not live"}</span>
      <SignedInAs />
      <Choice
        label="Theme"
        value={theme.value}
        options={[
          ["system", "System"],
          ["light", "Light"],
          ["dark", "Dark"],
        ]}
        isInline
        onChange={(chosen) => chooseTheme(chosen as Theme)}
      />
      <Button onClick={() => void signOut()}>Sign out</Button>
      <small class="version">Version {session.value?.version}</small>
    </div>
  );
}

/** The organization, and the person with the role or the key of the session. */
function SignedInAs() {
  const isOperator = session.value?.kind === "operator";
  const organization = useResource<{ name: string }>(isOperator ? undefined : "v1/organization");
  const person = session.value?.person ?? null;
  return (
    <>
      <div class="signed-in-as">
        <b>{isOperator ? "Operator" : (organization.data?.name ?? " ")}</b>
        {person === null ? (
          session.value?.key.name
        ) : (
          <>
            <span class="email" title={person.email}>
              {person.email}
            </span>
            <Badge>{roleTitle(person.role)}</Badge>
          </>
        )}
      </div>
      {person !== null && person.holders.length > 1 && session.value?.viewing === null && (
        <Switch person={person} />
      )}
    </>
  );
}

/** The choice among the organizations of a person. */
function Switch({ person }: { readonly person: SessionPerson }) {
  const current = person.member_id ?? OPERATOR;
  const change = async (id: string) => {
    try {
      await startSession("session/switch", { holder_id: id });
      navigate(hrefOf(""));
    } catch (error) {
      toast(messageOf(error), true);
    }
  };
  return (
    <Choice
      label="Organization"
      value={current}
      options={person.holders.map(({ id, name }) => [id, name])}
      onChange={(id) => void change(id)}
    />
  );
}

function NotFound() {
  return (
    <>
      <PageHead title="Page not found" />
      <Empty title="This page does not exist, or your role does not show it.">
        <Link page="">Go to the start page</Link>
      </Empty>
    </>
  );
}
