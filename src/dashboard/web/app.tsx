import { useEffect, useRef, useState } from "preact/hooks";
import { session, signOut } from "./api.ts";
import { Button, Choice, Link } from "./components/controls.tsx";
import { Toasts } from "./components/dialog.tsx";
import { Empty, Notice, PageHead } from "./components/display.tsx";
import { isLinkPage, LinkPage } from "./gate/link-pages.tsx";
import { SignIn } from "./gate/sign-in.tsx";
import { isLive } from "./live.ts";
import { type DashboardPage, PAGES } from "./pages/table.ts";
import { useResource } from "./resource.ts";
import { pageName, sectionName } from "./router.ts";
import { chooseTheme, type Theme, theme } from "./theme.ts";

export function App() {
  const currentSession = session.value;
  const requestedPage = pageName.value;
  if (isLinkPage(requestedPage)) return <LinkPage key={requestedPage} name={requestedPage} />;
  if (currentSession === undefined) return null;
  if (currentSession === null) return <SignIn />;
  const pages = PAGES.filter(({ of }) => of.includes(currentSession.kind));
  const section = sectionName.value;
  const matched = pages.find(
    ({ name, sections = [""] }) => name === requestedPage && sections.includes(section),
  );
  // Operators and organizations have different first pages.
  const shownPage = matched ?? (requestedPage === "" ? pages[0] : undefined);
  return (
    <>
      <Frame pages={pages} current={shownPage} />
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
        <nav aria-label="Pages">
          {pages
            .filter(({ isUnlisted }) => !isUnlisted)
            .map((page) => (
              <Link key={page.name} page={page.name} isCurrent={page === current} onFollow={close}>
                {page.title}
              </Link>
            ))}
        </nav>
        <Foot />
      </div>
      <main ref={content} tabIndex={-1}>
        {session.value?.test_payments === true && <TestPayments />}
        {current === undefined ? <NotFound /> : <current.Page />}
      </main>
    </div>
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

function SignedInAs() {
  const isOperator = session.value?.kind === "operator";
  const organization = useResource<{ name: string }>(isOperator ? undefined : "v1/organization");
  return (
    <p class="signed-in-as">
      <b>{isOperator ? "Operator" : (organization.data?.name ?? " ")}</b>
      {session.value?.key.name}
    </p>
  );
}

function NotFound() {
  return (
    <>
      <PageHead title="Page not found" />
      <Empty title="This page does not exist.">
        <Link page="">Go to the start page</Link>
      </Empty>
    </>
  );
}
