// SPDX-License-Identifier: Apache-2.0
//
// Colours are those of the reader's scheme: named once for light, once for dark. Levels of the maps
// run from blue (far within budget) through white or black to red, so that those who cannot tell
// red from green can read them.
#include "reference/report/page_parts.hpp"

namespace goldenrule::report {

const std::string_view kPageStyle = R"(
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#59636e;--line:#d1d9e0;--card:#f6f8fa;
--good:#1a7f37;--bad:#c8102e;--weak:#8a5a00;--blue:#2f6fb5;
--l0:#a9c7e8;--l1:#bdd3ec;--l2:#d0dff1;--l3:#e2eaf5;--l4:#f1f3f8;--l5:#fbd3b0;--l6:#f7ad7b;--l7:#ee8250;
--l8:#dd5631;--l9:#b92d1e;--la:#7f1315;--lb:#b100b8}
@media (prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--soft:#9aa5b1;--line:#30363d;
--card:#161b22;--good:#3fb950;--bad:#ff7b72;--weak:#d8a02a;--blue:#6ea8e0;
--l0:#24527f;--l1:#1f446a;--l2:#1b3855;--l3:#182c42;--l4:#152230;--l5:#5b3a1c;--l6:#8a4a1c;--l7:#b9601f;
--l8:#e0792f;--l9:#f7a35c;--la:#ffd9a8;--lb:#e35bea}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:12px 14px 48px;background:var(--bg);color:var(--fg);
font:15px/1.45 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:20px;margin:8px 0}h2{font-size:17px;margin:0 0 4px}h3{font-size:15px;margin:0 0 4px}
p{margin:4px 0}.soft,figcaption,.legend{color:var(--soft);font-size:13px}
a{color:inherit}section{border-top:2px solid var(--line);margin-top:26px;padding-top:14px}
.badge{display:inline-block;padding:0 7px;border:1px solid;border-radius:9px;font-size:12px;
font-weight:600;white-space:nowrap}
.good{color:var(--good)}.bad{color:var(--bad)}.weak{color:var(--weak)}
.scroll{overflow-x:auto;background:linear-gradient(90deg,var(--bg) 40%,transparent) 0 0/50px 100%,
linear-gradient(-90deg,var(--bg) 40%,transparent) 100% 0/50px 100%,
linear-gradient(90deg,var(--line),transparent) 0 0/16px 100%,
linear-gradient(-90deg,var(--line),transparent) 100% 0/16px 100%;background-repeat:no-repeat;
background-attachment:local,local,scroll,scroll}table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;padding:4px 8px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}
td:first-child{min-width:10em}td a{text-decoration:underline}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 12px;
margin:10px 0}.why{border-left:4px solid var(--blue)}
.problem{border-left:4px solid var(--bad)}
code,pre{font:13px/1.4 ui-monospace,monospace}pre{white-space:pre-wrap;margin:4px 0;user-select:all}
.tensor{display:flex;flex-wrap:wrap;gap:8px 28px}.tensor>div{flex:1 1 300px;min-width:0}
figure{margin:6px 0}.hist{width:100%;max-width:420px;display:block}
.hist text{font:10px system-ui,sans-serif;fill:var(--soft);text-anchor:middle}
.in{fill:var(--blue)}.out{fill:var(--bad)}.axis,.tick{stroke:var(--soft);fill:none}
.one{stroke:var(--fg);stroke-dasharray:3 2;fill:none}
.maps{display:flex;flex-wrap:wrap;gap:4px 32px}
.map{display:inline-grid;grid-template:auto auto/auto auto;gap:2px 4px;font-size:12px;
color:var(--soft)}.map svg{border:1px solid var(--line);background:var(--bg)}
.down{writing-mode:vertical-rl;transform:rotate(180deg);text-align:right;max-height:288px}
.across{grid-column:2;max-width:288px}
.map path{stroke-width:1;fill:none}.map .chunks,.map .sequences{stroke:var(--fg);stroke-width:1px;
vector-effect:non-scaling-stroke}.map .chunks{stroke-dasharray:2 3;opacity:.55}
.map .worst{fill:none;stroke:#fff;mix-blend-mode:difference;stroke-width:2px;vector-effect:non-scaling-stroke}
.l0{stroke:var(--l0);background:var(--l0)}.l1{stroke:var(--l1);background:var(--l1)}
.l2{stroke:var(--l2);background:var(--l2)}.l3{stroke:var(--l3);background:var(--l3)}
.l4{stroke:var(--l4);background:var(--l4)}.l5{stroke:var(--l5);background:var(--l5)}
.l6{stroke:var(--l6);background:var(--l6)}.l7{stroke:var(--l7);background:var(--l7)}
.l8{stroke:var(--l8);background:var(--l8)}.l9{stroke:var(--l9);background:var(--l9)}
.la{stroke:var(--la);background:var(--la)}.lb{stroke:var(--lb);background:var(--lb)}
.legend span{white-space:nowrap;margin-right:9px}.legend i{display:inline-block;width:11px;height:11px;
border:1px solid var(--line);margin-right:3px;vertical-align:-1px}
)";

}  // namespace goldenrule::report
