/** The work folder of programs, which contains the given files. */
export const WORK_FOLDER = "/mnt/data";

/** The path of Python that programs see. The real path of the gateway is hidden from them. */
export const PYTHON_PATH = "/usr/bin/python3";

/**
 * Python code whose value is a function that runs a cell like a notebook. Names persist between cells, the
 * value of a last expression is printed, and an exception is printed with only the program's own lines. The
 * code also removes the modules that give access to JavaScript.
 */
export const PREPARE_PYTHON = `
def _prepare():
    import ast, asyncio, linecache, os, random, sys, traceback, types
    from _pyodide._importhook import jsfinder
    from pyodide.code import CodeRunner

    os.makedirs("${WORK_FOLDER}", exist_ok=True)
    os.chdir("${WORK_FOLDER}")
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    count = -1
    # Each start from a snapshot has the same random state.
    random.seed()

    def print_error(error):
        frames = error.__traceback__
        while frames is not None and not frames.tb_frame.f_code.co_filename.startswith("<cell"):
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames)

    def keep_figures():
        plots = sys.modules.get("matplotlib.pyplot")
        if plots is None:
            return
        for number in plots.get_fignums():
            plots.figure(number).savefig(f"${WORK_FOLDER}/figure-{count}-{number}.png")
        plots.close("all")

    async def run(code):
        nonlocal count
        count += 1
        name = f"<cell {count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        has_finished = False
        try:
            value = await CodeRunner(code, filename=name, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT).compile().run_async(main.__dict__)
            if value is not None:
                print(repr(value))
            keep_figures()
            has_finished = True
        except SystemExit as end:
            has_finished = end.code in (None, 0)
        except BaseException as error:
            print_error(error)
        sys.stdout.flush()
        sys.stderr.flush()
        return has_finished

    def run_loop(*_, **__):
        raise RuntimeError("asyncio.run does not work here: await at the top level instead")

    def refuse_process(*_):
        raise OSError("processes are not available here")

    asyncio.run = run_loop
    # It uses Node's interfaces, which fail under the lock-down.
    os.system = refuse_process
    sys.stdout.reconfigure(line_buffering=True)
    for name in ("js", "pyodide_js"):
        jsfinder.jsproxies.pop(name, None)
        for loaded in [key for key in sys.modules if key.split(".")[0] == name]:
            del sys.modules[loaded]
    return run

_prepare()
`;
