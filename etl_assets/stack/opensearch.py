"""OpenSearch: one node with text analysis, scripts, reindexing, joins and search templates; no passwords.

Belongs here: its jars, its settings, the small program that runs a node. Does not belong here: indexes.

The jars hold no program that starts a node from a class path. Ours is compiled at its start by Janino, which
Spark brings along: a machine with a Java runtime has no compiler.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from etl_assets.errors import RuntimeMissing
from etl_assets.runtime.java import find_java
from etl_assets.stack.http import answers
from etl_assets.stack.jar_set import load
from etl_assets.stack.managed import ManagedServer
from etl_assets.stack.process import ServerProcess
from etl_assets.stack.server import HOST, free_port

VERSION = "2.19.1"
JVM_OPTIONS = ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PLUGINS = (
    "org.opensearch.transport.Netty4Plugin",
    "org.opensearch.analysis.common.CommonAnalysisPlugin",
    "org.opensearch.painless.PainlessPlugin",
    "org.opensearch.index.reindex.ReindexPlugin",
    "org.opensearch.index.mapper.MapperExtrasPlugin",
    "org.opensearch.join.ParentJoinPlugin",
    "org.opensearch.script.mustache.MustachePlugin",
)
SETTINGS = {
    "cluster.name": "etl-assets",
    "node.name": "node",
    "discovery.type": "single-node",
    "network.host": HOST,
    "transport.type": "netty4",
    "http.type": "netty4",
    # A disk that is nearly full makes indexes read-only otherwise.
    "cluster.routing.allocation.disk.threshold_enabled": "false",
    "action.auto_create_index": "true",
    # It counts garbage too, of which the serial collector leaves a heap full, and refuses requests for it.
    "indices.breaker.total.use_real_memory": "false",
}
MAIN = """\
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;

/** One node that runs until it is ended. Arguments: setting=value. */
public class OpenSearchServer {
    static class PluginNode extends Node {
        PluginNode(Environment environment, Collection plugins) {
            super(environment, plugins, true);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Settings.Builder settings = Settings.builder();
        Collection plugins = new ArrayList();
        for (int i = 0; i < arguments.length; i++) {
            int end = arguments[i].indexOf('=');
            String name = arguments[i].substring(0, end);
            String value = arguments[i].substring(end + 1);
            if (name.equals("plugin")) {
                plugins.add(Class.forName(value));
            } else {
                settings.put(name, value);
            }
        }
        final Node node = new PluginNode(
            InternalSettingsPreparer.prepareEnvironment(settings.build(), Collections.EMPTY_MAP, null, null),
            plugins);
        Runtime.getRuntime().addShutdownHook(new Thread() {
            public void run() {
                try {
                    node.close();
                } catch (java.io.IOException error) {
                    error.printStackTrace();
                }
            }
        });
        node.start();
        System.out.println("OpenSearch started");
        Thread.currentThread().join();
    }
}
"""
_STARTING_SECONDS = 120
_READY = b"OpenSearch started"


class OpenSearchServer(ManagedServer):
    """One node.

    Args:
        folder: Folder of its indexes; a temporary one by default.
        port: Its port for HTTP; a free one by default.
        settings: More settings by name, or others than `SETTINGS`.
        say: Receives what a download is doing.
    """

    name = "OpenSearch"

    def __init__(
        self,
        folder: Path | None = None,
        port: int | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(folder, port)
        self.settings = {**SETTINGS, **(settings or {})}
        self._transport_port = free_port()
        self._say = say

    def _launch(self) -> ServerProcess:
        java = find_java()
        jars = load("opensearch", f"OpenSearch {VERSION}")
        jars.ensure(java, self._say)
        (self.folder / "config").mkdir(exist_ok=True)
        main = self.folder / "OpenSearchServer.java"
        main.write_text(MAIN, "utf-8")
        settings = {
            **self.settings,
            "path.home": str(self.folder),
            "http.port": str(self.port),
            "transport.port": str(self._transport_port),
        }
        class_path = ":".join((jars.class_path, *map(str, _compiler())))
        command = [str(java.executable), *JVM_OPTIONS, "-cp", class_path]
        command += ["org.codehaus.janino.SimpleCompiler", str(main), "OpenSearchServer"]
        command += [f"{name}={value}" for name, value in settings.items()]
        command += [f"plugin={plugin}" for plugin in PLUGINS]
        process = ServerProcess(name=self.name, command=command, log=self.log, folder=self.folder)
        process.wait_until(
            lambda: process.has_logged(_READY) and answers(self.port, "/_cluster/health"), _STARTING_SECONDS
        )
        return process


def _compiler() -> list[Path]:
    """Return Janino's two jars, from pip's pyspark."""
    spec = importlib.util.find_spec("pyspark")
    folders = [Path(each) / "jars" for each in (spec.submodule_search_locations or ())] if spec else []
    found = [
        jar
        for folder in folders
        for name in ("janino", "commons-compiler")
        for jar in folder.glob(f"{name}-*.jar")
    ]
    if len(found) < 2:
        raise RuntimeMissing(
            "the Java compiler Janino is not among pyspark's jars", fix="install the pinned pyspark again"
        )
    return found
