// From a report's data to what Apache ECharts draws: sections of text, tables and figures. No browser is asked for
// anything here, and nothing newer than ECMAScript 5: `tidemark report --figures` runs this, too.
var Tidemark = (function () {
  'use strict';

  var themes = {
    light: {ink: '#1d2530', muted: '#5c6773', line: '#dde1e6', paper: '#ffffff', no: '#b3372f', accent: '#2f5d8a',
            heat: ['#f4f6f8', '#bcd2e4', '#5b8db8', '#2f5d8a', '#1b3a5c']},
    dark: {ink: '#e4e8ec', muted: '#97a2ae', line: '#323a44', paper: '#14181d', no: '#ec8078', accent: '#8fb8de',
           heat: ['#1c2229', '#27425c', '#3a6a96', '#6c9dcb', '#bcd8f2']}
  };
  // Bottom first: state in blues, activations in greens, traffic in oranges, what drivers hold in greys.
  var order = [
    ['parameters', '#2f5d8a'], ['gradients', '#5b8db8'], ['optimizer_master', '#8fb3d1'],
    ['optimizer_moments', '#b9d0e3'], ['adapters', '#7b5ea7'], ['quantization', '#9d85c1'], ['kv_cache', '#bfafd8'],
    ['saved_activations', '#2a8f83'], ['recompute', '#5fb3a7'], ['temporaries', '#94cfc6'], ['logits_loss', '#c2e4de'],
    ['comm_tp', '#c9752a'], ['comm_cp', '#d68d46'], ['comm_ep', '#e0a566'], ['comm_dp', '#e8bd8b'],
    ['comm_pp', '#f0d5b2'], ['offload_staging', '#8a6d5a'], ['workspaces', '#7f8791'], ['fragmentation', '#d9a3a0'],
    ['nccl', '#a3aab3'], ['context', '#c5cad1']
  ];
  var colours = {};
  order.forEach(function (entry) { colours[entry[0]] = entry[1]; });
  var phase_colours = {construction: '#a3aab3', forward: '#2a8f83', backward: '#2f5d8a', optimizer_step: '#7b5ea7',
                       communication: '#c9752a', rollout: '#9d85c1'};
  // Of communicators: none that a phase has.
  var slot_colours = ['#8a6d5a', '#d68d46', '#e8bd8b', '#b3a08f', '#d9a3a0', '#7f8791', '#5c4a3d', '#c5cad1', '#f0d5b2'];

  // -- numbers as people read them ------------------------------------------------------------------------------------

  function gib(bytes) { return (bytes / 1073741824).toFixed(2) + ' GiB'; }
  function mib(bytes) {
    return bytes >= 1073741824 ? gib(bytes) : (bytes / 1048576).toFixed(bytes < 10485760 ? 2 : 1) + ' MiB';
  }
  function percent(share) { return (100 * share).toFixed(1) + ' %'; }
  function thousands(n) { return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ',').replace(/,/g, '\u202f'); }
  function words(name) { return name.replace(/_/g, ' '); }
  function escaped(text) { return String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;'); }
  /// A unit for times up to `ns`.
  function clock(ns) {
    var units = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
    for (var i = 0; i < units.length; ++i)
      if (ns >= units[i][0] || i === units.length - 1) return {scale: units[i][0], unit: units[i][1]};
    return null;
  }
  function time(ns) {
    var c = clock(Math.abs(ns));
    return (ns / c.scale).toPrecision(4) + ' ' + c.unit;
  }
  function dot(colour) {
    return '<span style="display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:6px;background:' +
           colour + '"></span>';
  }
  function row(left, right) {
    return '<div style="display:flex;justify-content:space-between;gap:18px"><span>' + left + '</span><b>' + right +
           '</b></div>';
  }
  function sums(steps) {
    var sum = 0;
    return steps.map(function (step) { return sum += step; });
  }
  function place_text(phase, micro_batch, op) {
    return words(phase) + (micro_batch >= 0 ? ' of micro-batch ' + micro_batch : '') + (op ? ', ' + op : '');
  }
  function instant(at) {
    return 'step ' + at.step + ', ' + place_text(at.phase, at.micro_batch === null ? -1 : at.micro_batch, at.op);
  }

  // -- what all figures have in common ------------------------------------------------------------------------------

  /// 1, 2 or 5 times a power of ten, no less than `most`.
  function round_step(most) {
    var ten = Math.pow(10, Math.floor(Math.log(most) / Math.LN10));
    return [1, 2, 5, 10].map(function (n) { return n * ten; }).filter(function (n) { return n >= most * (1 - 1e-9); })[0];
  }
  function axis(theme, more) {
    var base = {
      nameTextStyle: {color: theme.muted}, axisLabel: {color: theme.muted},
      axisLine: {lineStyle: {color: theme.line}}, axisTick: {lineStyle: {color: theme.line}},
      splitLine: {lineStyle: {color: theme.line}}
    };
    for (var key in more) base[key] = more[key];
    return base;
  }
  function time_axis(theme, c, end, more) {
    var base = {type: 'value', name: 'time in the step (' + c.unit + ')', nameLocation: 'middle', nameGap: 26, max: end,
                splitLine: {show: false},
                axisLabel: {color: theme.muted, hideOverlap: true, showMaxLabel: false,
                            formatter: function (t) { return String(+t.toPrecision(6)); }}};
    for (var key in more) base[key] = more[key];
    return axis(theme, base);
  }
  function tooltip(theme, more) {
    var base = {backgroundColor: theme.paper, borderColor: theme.line, confine: true, transitionDuration: 0,
                textStyle: {color: theme.ink, fontSize: 12}};
    for (var key in more) base[key] = more[key];
    return base;
  }
  function zoom(theme, axis_index, filter) {
    return [{type: 'inside', xAxisIndex: axis_index, filterMode: filter, zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false},
            {type: 'slider', xAxisIndex: axis_index, filterMode: filter, height: 16, bottom: 4, showDetail: false,
             borderColor: theme.line, textStyle: {color: theme.muted}, brushSelect: false}];
  }
  function legend(theme, names, more) {
    var base = {show: true, data: names, textStyle: {color: theme.ink, fontSize: 12}, itemWidth: 12, itemHeight: 10,
                icon: 'rect', type: 'plain', top: 5, left: 0, padding: 0, inactiveColor: theme.line};
    for (var key in more) base[key] = more[key];
    return base;
  }
  /// `across`: upright, with its name on the side of the axis that `at_top` says.
  function capacity_line(theme, bytes, across, at_top) {
    var at = across ? {xAxis: bytes / 1073741824} : {yAxis: bytes / 1073741824};
    var label = {formatter: 'capacity ' + gib(bytes), color: theme.no, position: across ? at_top : 'insideEndTop'};
    if (across) label.align = 'right';
    return {silent: true, symbol: 'none', lineStyle: {color: theme.no, type: 'dashed', width: 1.5}, label: label, data: [at],
            animation: false};
  }
  /// Of lists of colours: the theme's, by its name, or one of its own.
  function colour_of(theme, name) { return theme[name] || name; }

  // -- memory over the step -----------------------------------------------------------------------------------------

  /// A rank's curve, in numbers that can be drawn: by category and point, GiB.
  function curve_of(data, memory) {
    var times = sums(memory.time_ns), reserved = sums(memory.reserved_kib), driver = sums(memory.driver_kib);
    var held = memory.kinds.map(function () { return 0; });
    var by_category = data.categories.map(function () { return 0; });
    var columns = data.categories.map(function () { return []; });
    var frag = data.categories.indexOf('fragmentation');
    var peak = 0;
    memory.changes.forEach(function (changes, i) {
      for (var c = 0; c < changes.length; c += 3) {
        held[changes[c]] += changes[c + 1];
        by_category[memory.kinds[changes[c]][1]] += changes[c + 1];
      }
      var sum = 0;
      by_category.forEach(function (kib, k) {
        if (k !== frag) columns[k].push(kib / 1048576);
        sum += kib;
      });
      var device = reserved[i] + driver[i];
      columns[frag].push(Math.max(0, device - sum) / 1048576);
      peak = Math.max(peak, device);
    });
    return {times: times, columns: columns, fragmentation: frag, reserved: reserved, driver: driver, peak_kib: peak};
  }
  /// What lives on the rank at a point: kinds with their bytes and numbers, largest first.
  function living(memory, point) {
    var bytes = memory.kinds.map(function () { return 0; }), tensors = memory.kinds.map(function () { return 0; });
    for (var i = 0; i <= point; ++i) {
      var changes = memory.changes[i];
      for (var c = 0; c < changes.length; c += 3) {
        bytes[changes[c]] += changes[c + 1];
        tensors[changes[c]] += changes[c + 2];
      }
    }
    return memory.kinds.map(function (kind, k) {
      return {name: kind[0], category: kind[1], bytes: 1024 * bytes[k], tensors: tensors[k]};
    }).filter(function (kind) { return kind.bytes > 0; }).sort(function (a, b) { return b.bytes - a.bytes; });
  }

  /// Which points a picture of that many pixels can tell apart: of each stretch the highest and the lowest.
  function told_apart(its, most) {
    var n = its.times.length, length = Math.ceil(2 * n / most), found = [0];
    function allocated(i) {
      return its.columns.reduce(function (sum, column) { return sum + column[i]; }, -its.columns[its.fragmentation][i]);
    }
    for (var first = 1; first < n - 1; first += length) {
      var high = first, low = first;
      for (var i = first; i < Math.min(first + length, n - 1); ++i) {
        if (allocated(i) > allocated(high)) high = i;
        if (allocated(i) < allocated(low)) low = i;
      }
      found.push(Math.min(high, low));
      if (high !== low) found.push(Math.max(high, low));
    }
    if (n > 1) found.push(n - 1);
    return found;
  }

  function memory_figure(data, stage, small) {
    var memory = stage.memory, c = clock(data.step.length_ns), capacity = data.prediction.capacity_bytes;
    var curve = null;
    function made() { return curve = curve || curve_of(data, memory); }
    var group = data.prediction.groups.filter(function (g) { return parseInt(g.ranks, 10) === memory.rank; })[0];
    return {
      id: 'memory-stage-' + stage.stage,
      title: (data.stages.length > 1 ? 'stage ' + stage.stage + ', ' : '') + 'rank ' + memory.rank,
      caption: group ? 'peak ' + gib(group.peak_device_bytes) + ' (up to ' + gib(group.peak_device_upper_bytes) +
                           ') of ' + gib(capacity) + ' at ' + instant(group.peak_at) : '',
      height: small ? 250 : 340,
      option: function (theme, range, most_points) {
        var its = made(), series = [], names = [];
        var points = most_points ? told_apart(its, most_points) : its.times.map(function (ns, i) { return i; });
        // Two events of one moment stay one after the other.
        var x = its.times.map(function (ns) { return ns / c.scale; });
        for (var i = 1; i < x.length; ++i) if (x[i] <= x[i - 1]) x[i] = x[i - 1] + 1e-9 * data.step.length_ns / c.scale;
        // Each area reaches down to zero, and what is above it lies behind: no gaps between them.
        var below = x.map(function () { return 0; });
        order.forEach(function (entry, at) {
          var column = its.columns[data.categories.indexOf(entry[0])];
          if (!column.some(function (gib_) { return gib_ > 0; })) return;
          names.push(words(entry[0]));
          series.push({name: words(entry[0]), type: 'line', step: 'end', symbol: 'none', color: entry[1], z: 60 - at,
                       lineStyle: {width: 0}, areaStyle: {opacity: 1}, emphasis: {disabled: true}, animation: false,
                       data: points.map(function (k) { return [x[k], below[k] += column[k]]; })});
        });
        series.push({name: 'capacity', type: 'line', data: [], z: 90, tooltip: {show: false},
                     markLine: capacity_line(theme, capacity, false, '')});
        var most = Math.max(capacity / 1073741824, its.peak_kib / 1048576);
        return {
          animation: false,
          grid: {left: 48, right: 14, top: small ? 12 : 50, bottom: 64},
          legend: small ? {show: false} : legend(theme, names, {selectedMode: false}),
          xAxis: time_axis(theme, c, data.step.length_ns / c.scale, {min: Math.min(0, x[0])}),
          yAxis: axis(theme, {type: 'value', max: +(1.03 * most).toPrecision(3),
                              axisLabel: {color: theme.muted, showMaxLabel: false}}),
          dataZoom: zoom(theme, 0, 'none'),
          tooltip: tooltip(theme, {
            trigger: 'axis', axisPointer: {type: 'line', lineStyle: {color: theme.muted}},
            formatter: function (shown) {
              var at = shown[0].dataIndex, out = '';
              var place = memory.places[memory.place[at]];
              out += '<div style="color:' + theme.muted + '">' + time(its.times[at]) + ', ' +
                     escaped(place_text(data.phases[memory.phase[at]], memory.micro_batch[at], place)) + '</div>';
              out += row('device', gib(1024 * (its.reserved[at] + its.driver[at])));
              order.slice().reverse().forEach(function (entry) {
                var amount = its.columns[data.categories.indexOf(entry[0])][at];
                if (amount >= 0.005) out += row(dot(entry[1]) + words(entry[0]), amount.toFixed(2) + ' GiB');
              });
              out += '<div style="color:' + theme.muted + ';margin-top:4px">what lives</div>';
              living(memory, at).slice(0, 9).forEach(function (kind) {
                out += row(escaped(kind.name) + (kind.tensors > 1 ? ' × ' + kind.tensors : ''), mib(kind.bytes));
              });
              return out;
            }
          }),
          series: series
        };
      },
      table: function () {
        var its = made();
        var used = data.categories.filter(function (name, k) {
          return its.columns[k].some(function (gib_) { return gib_ > 0; });
        });
        return {head: ['time (ns)', 'phase', 'micro-batch', 'operator'].concat(used.map(function (n) { return n + ' (GiB)'; })),
                rows: its.times.map(function (ns, i) {
                  return [ns, data.phases[memory.phase[i]], memory.micro_batch[i] < 0 ? '' : memory.micro_batch[i],
                          memory.places[memory.place[i]]].concat(used.map(function (name) {
                    return +its.columns[data.categories.indexOf(name)][i].toFixed(4);
                  }));
                })};
      }
    };
  }

  // -- what peaks are made of -----------------------------------------------------------------------------------------

  function group_name(group) {
    if (group.title) return group.title;
    var at = group.coordinates, parts = ['pp', 'dp', 'cp', 'ep', 'tp'].filter(function (axis_) { return at[axis_] > 0; });
    return 'rank ' + parseInt(group.ranks, 10) + (parts.length ? ' (' + parts.map(function (axis_) {
      return axis_ + ' ' + at[axis_];
    }).join(', ') + ')' : '') + (group.rank_count > 1 ? ' × ' + group.rank_count : '');
  }
  /// All groups of ranks, or, where there are many, the fullest of each pipeline stage.
  function shown_groups(data) {
    var groups = data.prediction.groups;
    if (groups.length <= 24) return groups;
    var fullest = {};
    groups.forEach(function (group) {
      var stage = group.coordinates.pp;
      if (!fullest[stage] || group.peak_device_upper_bytes > fullest[stage].peak_device_upper_bytes) fullest[stage] = group;
    });
    return Object.keys(fullest).map(function (stage) { return fullest[stage]; });
  }
  function composition_figure(data) {
    var groups = shown_groups(data), capacity = data.prediction.capacity_bytes;
    return {
      id: 'composition',
      title: 'What each rank’s peak is made of',
      caption: (groups.length < data.prediction.groups.length ? 'The fullest ranks of each stage. ' : '') +
               'Ranks of one line are alike. The mark is where estimates of driver memory and freed blocks may reach.',
      height: 110 + 26 * groups.length,
      option: function (theme) {
        var names = [], series = [];
        order.forEach(function (entry) {
          if (!groups.some(function (g) { return g.at_peak[entry[0]] > 0; })) return;
          names.push(words(entry[0]));
          series.push({name: words(entry[0]), type: 'bar', stack: 'device', color: entry[1], barMaxWidth: 18,
                       emphasis: {disabled: true}, animation: false,
                       data: groups.map(function (g) { return g.at_peak[entry[0]] / 1073741824; })});
        });
        series.push({name: 'up to', type: 'scatter', symbol: 'rect', symbolSize: [3, 18], color: theme.ink, animation: false,
                     data: groups.map(function (g) { return g.peak_device_upper_bytes / 1073741824; }),
                     markLine: capacity_line(theme, capacity, true, 'start')});
        var most = groups.reduce(function (all, g) { return Math.max(all, g.peak_device_upper_bytes); }, capacity);
        return {
          animation: false,
          grid: {left: 8, right: 24, top: 66, bottom: 30, containLabel: true},
          legend: legend(theme, names),
          xAxis: axis(theme, {type: 'value', name: 'GiB', nameLocation: 'middle', nameGap: 24,
                              max: +(1.02 * most / 1073741824).toPrecision(3),
                              axisLabel: {color: theme.muted, showMaxLabel: false}}),
          yAxis: axis(theme, {type: 'category', inverse: true, data: groups.map(group_name),
                              axisLabel: {color: theme.ink, fontSize: 12}}),
          tooltip: tooltip(theme, {
            trigger: 'axis', axisPointer: {type: 'shadow'},
            formatter: function (shown) {
              var group = groups[shown[0].dataIndex], out = '<b>' + escaped(group_name(group)) + '</b>';
              out += '<div style="color:' + theme.muted + '">' + escaped(instant(group.peak_at)) + '</div>';
              out += row('device', gib(group.peak_device_bytes)) + row('up to', gib(group.peak_device_upper_bytes));
              order.forEach(function (entry) {
                var bytes = group.at_peak[entry[0]];
                if (bytes > 0) out += row(dot(entry[1]) + words(entry[0]), mib(bytes));
              });
              return out;
            }
          }),
          series: series
        };
      },
      table: function () {
        var used = data.categories.filter(function (name) {
          return groups.some(function (g) { return g.at_peak[name] > 0; });
        });
        return {head: ['ranks', 'device (B)', 'up to (B)'].concat(used.map(function (n) { return n + ' (B)'; })),
                rows: groups.map(function (g) {
                  return [g.ranks, g.peak_device_bytes, g.peak_device_upper_bytes].concat(used.map(function (n) {
                    return g.at_peak[n];
                  }));
                })};
      }
    };
  }

  // -- where time goes ------------------------------------------------------------------------------------------------

  function shares_figure(data) {
    var parts = [['kernels', '#2a8f83', function (s) { return s.kernels; }],
                 ['waiting for other ranks', '#d9a3a0', function (s) { return s.waiting; }],
                 ['host late', '#a3aab3', function (s) { return s.idle; }],
                 ['copies', '#8a6d5a', function (s) { return s.copies; }]];
    data.communicators.forEach(function (name, slot) {
      parts.push(['exposed ' + name, slot_colours[slot % slot_colours.length],
                  function (s) { return s.exposed[name] || 0; }]);
    });
    parts = parts.filter(function (part) {
      return data.stages.some(function (stage) { return part[2](stage.shares) >= 0.0005; });
    });
    function stage_name(stage) { return data.stages.length > 1 ? 'stage ' + stage.stage : 'rank ' + stage.memory.rank; }
    return {
      id: 'step-time', title: 'Where the step’s time goes',
      caption: 'Shares of the compute stream of the rank that is shown of each stage.',
      height: 96 + 24 * data.stages.length,
      option: function (theme) {
        return {
          animation: false,
          grid: {left: 8, right: 24, top: 44, bottom: 30, containLabel: true},
          legend: legend(theme, parts.map(function (part) { return part[0]; })),
          xAxis: axis(theme, {type: 'value', max: 100, name: '% of the step', nameLocation: 'middle', nameGap: 24}),
          yAxis: axis(theme, {type: 'category', inverse: true, data: data.stages.map(stage_name),
                              axisLabel: {color: theme.ink, fontSize: 12}}),
          tooltip: tooltip(theme, {trigger: 'axis', axisPointer: {type: 'shadow'}, valueFormatter: function (v) {
            return v.toFixed(1) + ' %';
          }}),
          series: parts.map(function (part) {
            return {name: part[0], type: 'bar', stack: 'step', color: part[1], barMaxWidth: 16, animation: false,
                    emphasis: {disabled: true},
                    data: data.stages.map(function (stage) { return +(100 * part[2](stage.shares)).toFixed(3); })};
          })
        };
      },
      table: function () {
        return {head: ['stage'].concat(parts.map(function (part) { return part[0] + ' (%)'; })),
                rows: data.stages.map(function (stage) {
                  return [stage.stage].concat(parts.map(function (part) {
                    return +(100 * part[2](stage.shares)).toFixed(3);
                  }));
                })};
      }
    };
  }

  function schedule_figure(data) {
    var c = clock(data.step.length_ns), lanes = data.stages.length;
    var many = lanes > 1;
    function name_of(stage) { return many ? 'stage ' + stage.stage : 'rank ' + stage.memory.rank; }
    function slot_name(slot) { return slot < 0 ? 'copies to and from the host' : data.communicators[slot]; }
    return {
      id: 'schedule', title: 'The schedule, to scale',
      caption: 'Passes of the rank that is shown of each stage, numbered by micro-batch, and below them what it sends ' +
               'and receives. What is left empty is a bubble. Zoom with the bar below, or ctrl and the wheel.',
      height: 120 + Math.max(34, many ? 34 : 60) * lanes,
      option: function (theme) {
        var by_phase = {}, by_slot = {};
        data.stages.forEach(function (stage, lane) {
          stage.lane.passes.forEach(function (p) {
            var phase = data.phases[p[3]];
            (by_phase[phase] = by_phase[phase] || []).push([p[0] / c.scale, p[1] / c.scale, lane, p[4], p[2]]);
          });
          stage.lane.traffic.forEach(function (t) {
            var name = slot_name(t[3]);
            (by_slot[name] = by_slot[name] || {slot: t[3], items: []})
                .items.push([t[0] / c.scale, t[1] / c.scale, lane, t[4], t[2], t[5]]);
          });
        });
        function bar(top, share, text) {
          return function (params, api) {
            var from = api.coord([api.value(0), api.value(2)]), to = api.coord([api.value(1), api.value(2)]);
            var band = api.size([0, 1])[1];
            var box = params.coordSys;
            var left = Math.max(from[0], box.x), right = Math.min(to[0], box.x + box.width);
            if (right < left) return null;
            var shape = {x: left, y: from[1] + band * top, width: Math.max(right - left, 0.5), height: band * share};
            var item = {type: 'rect', shape: shape, style: {fill: api.visual('color')}};
            if (text && api.value(3) >= 0 && shape.width > 16) {
              item.textContent = {style: {text: String(api.value(3)), fill: '#fff', fontSize: 10}};
              item.textConfig = {position: 'inside'};
            }
            return item;
          };
        }
        var series = [];
        Object.keys(by_phase).forEach(function (phase) {
          series.push({name: words(phase), type: 'custom', color: phase_colours[phase], renderItem: bar(-0.42, 0.52, true),
                       encode: {x: [0, 1], y: 2}, data: by_phase[phase], animation: false, clip: true});
        });
        Object.keys(by_slot).forEach(function (name) {
          var slot = by_slot[name].slot;
          series.push({name: name, type: 'custom', renderItem: bar(0.16, 0.2, false), encode: {x: [0, 1], y: 2},
                       color: slot < 0 ? '#7f8791' : slot_colours[slot % slot_colours.length],
                       data: by_slot[name].items, animation: false, clip: true});
        });
        return {
          animation: false,
          grid: {left: 8, right: 14, top: 40, bottom: 64, containLabel: true},
          legend: legend(theme, series.map(function (s) { return s.name; })),
          xAxis: time_axis(theme, c, data.step.length_ns / c.scale, {min: 0}),
          yAxis: axis(theme, {type: 'category', inverse: true, data: data.stages.map(name_of),
                              splitLine: {show: true, lineStyle: {color: theme.line}},
                              axisLabel: {color: theme.ink, fontSize: 12}}),
          dataZoom: zoom(theme, 0, 'weakFilter'),
          tooltip: tooltip(theme, {
            trigger: 'item',
            formatter: function (shown) {
              var v = shown.value, length = (v[1] - v[0]) * c.scale;
              var out = '<b>' + shown.marker + escaped(shown.seriesName) + '</b> ' + name_of(data.stages[v[2]]);
              if (v.length > 5)
                return out + row('from', time(v[0] * c.scale)) + row('takes', time(length)) +
                       row('moving', time(v[4])) + row('bytes', mib(1024 * v[3])) + row('transfers', v[5]);
              if (v[3] >= 0) out += row('micro-batch', v[3]);
              return out + row('from', time(v[0] * c.scale)) + row('takes', time(length)) +
                     row('in kernels', percent(length > 0 ? v[4] / length : 1));
            }
          }),
          series: series
        };
      },
      table: function () {
        var rows = [];
        data.stages.forEach(function (stage) {
          stage.lane.passes.forEach(function (p) {
            rows.push([stage.stage, data.phases[p[3]], p[4] < 0 ? '' : p[4], p[0], p[1], p[2], '', '']);
          });
          stage.lane.traffic.forEach(function (t) {
            rows.push([stage.stage, slot_name(t[3]), '', t[0], t[1], t[2], t[4], t[5]]);
          });
        });
        return {head: ['stage', 'what', 'micro-batch', 'begin (ns)', 'end (ns)', 'busy (ns)', 'KiB', 'transfers'], rows: rows};
      }
    };
  }

  // -- all ranks --------------------------------------------------------------------------------------------------------

  function heat_figure(data) {
    var heat = data.heat, c = clock(data.step.length_ns), columns = heat.mib.length ? heat.mib[0].length : 0;
    var row_of = [];
    for (var i = 0; i < heat.runs.length; i += 2)
      for (var k = 0; k < heat.runs[i + 1]; ++k) row_of.push(heat.runs[i]);
    var ranks = row_of.length;
    /// Lines of as many ranks each, the highest of them.
    function lines(from, to, most) {
      var count = Math.min(most || 160, to - from), found = [];
      for (var l = 0; l < count; ++l) {
        var first = from + Math.floor((to - from) * l / count), last = from + Math.floor((to - from) * (l + 1) / count) - 1;
        var seen = {}, values = null;
        for (var r = first; r <= last; ++r) {
          if (seen[row_of[r]]) continue;
          seen[row_of[r]] = true;
          var its = heat.mib[row_of[r]];
          values = values ? values.map(function (v, at) { return Math.max(v, its[at]); }) : its.slice();
        }
        found.push({first: first, last: last, mib: values});
      }
      return found;
    }
    function line_name(line) { return line.first === line.last ? String(line.first) : line.first + '–' + line.last; }
    var most = 0, least = Infinity;
    heat.mib.forEach(function (its) {
      its.forEach(function (v) {
        most = Math.max(most, v);
        if (v > 0) least = Math.min(least, v);
      });
    });
    return {
      id: 'ranks', title: 'Device memory of all ' + thousands(ranks) + ' ranks',
      caption: (heat.played < heat.groups ? 'Of ' + heat.groups + ' classes of ranks, ' + heat.played +
                                                ' are drawn; others as the fullest of their stage. '
                                          : heat.groups + (heat.groups === 1 ? ' class' : ' classes') +
                                                ' of ranks alike. ') +
               (ranks > 160 ? 'A line shows the highest of its ranks; click one to look into it.' : ''),
      height: Math.max(170, Math.min(460, 110 + 6 * Math.min(160, ranks))),
      range: [0, ranks],
      /// What a click on a line leads to: its ranks, or all of them again.
      range_after: function (range, line) {
        var at = lines(range[0], range[1])[line];
        return at.last > at.first ? [at.first, at.last + 1] : [0, ranks];
      },
      option: function (theme, range, most_points) {
        var shown = lines((range || [0, ranks])[0], (range || [0, ranks])[1], most_points ? 64 : 160), cells = [];
        var stride = most_points ? 3 : 1, length = data.step.length_ns / c.scale / columns * stride;
        var tick = round_step(length * columns / stride / 8);
        function ticks_before(x) { return Math.ceil(x * length / tick - 1e-9); }
        shown.forEach(function (line, y) {
          for (var x = 0; x < columns; x += stride)
            cells.push([x / stride, y, +(Math.max.apply(null, line.mib.slice(x, x + stride)) / 1024).toFixed(3)]);
        });
        return {
          animation: false,
          grid: {left: 8, right: 14, top: 38, bottom: 34, containLabel: true},
          xAxis: axis(theme, {type: 'category', name: 'time in the step (' + c.unit + ')', nameLocation: 'middle', nameGap: 24,
                              axisTick: {show: false}, splitArea: {show: false},
                              axisLabel: {color: theme.muted, formatter: function (t) { return String(+(+t).toPrecision(6)); },
                                          interval: function (x) { return ticks_before(x + 1) > ticks_before(x); }},
                              data: (heat.mib[0] || []).filter(function (v, x) { return x % stride === 0; }).map(function (v, x) {
                                return tick * ticks_before(x);
                              })}),
          yAxis: axis(theme, {type: 'category', inverse: true, name: 'ranks', nameLocation: 'start', data: shown.map(line_name),
                              axisLabel: {color: theme.muted, hideOverlap: true}}),
          visualMap: {min: Math.floor(least / 1024), max: Math.ceil(most / 1024), calculable: false, orient: 'horizontal',
                      right: 8, top: 0, itemHeight: 130, itemWidth: 12, text: [Math.ceil(most / 1024) + ' GiB', Math.floor(least / 1024) + ' GiB'],
                      textStyle: {color: theme.muted}, inRange: {color: theme.heat}},
          tooltip: tooltip(theme, {
            formatter: function (cell) {
              return row('ranks', line_name(shown[cell.value[1]])) +
                     row('time', time((stride * cell.value[0] + 0.5) / columns * data.step.length_ns)) +
                     row('device', cell.value[2].toFixed(2) + ' GiB');
            }
          }),
          series: [{type: 'heatmap', data: cells, progressive: 0, emphasis: {disabled: true}, animation: false}]
        };
      },
      table: function () {
        return {head: ['ranks'].concat(heat.mib.length ? heat.mib[0].map(function (v, x) {
          return String(Math.round((x + 0.5) / columns * data.step.length_ns));
        }) : []).map(function (h, at) { return at ? h + ' ns (MiB)' : h; }),
                rows: lines(0, ranks).map(function (line) { return [line_name(line)].concat(line.mib); })};
      }
    };
  }

  // -- links ------------------------------------------------------------------------------------------------------------

  function fabric_figure(data) {
    var fabric = data.fabric, types = fabric.types.filter(function (t) { return t.places.length; });
    var places = 0;
    types.forEach(function (type) { type.places.forEach(function (p) { places = Math.max(places, p[0] + 1); }); });
    var columns = Math.min(places, 128);
    return {
      id: 'fabric', title: 'How busy the links are',
      caption: fabric.cluster + ': ' + fabric.nodes + (fabric.nodes === 1 ? ' node of ' : ' nodes of ') +
               fabric.devices_per_node + ' devices' + (fabric.leaves > 1 ? ', ' + fabric.leaves + ' leaves' : '') +
               '. Of each node (or leaf) and type the busiest link, in percent of the step.',
      height: 110 + 24 * Math.max(1, types.length),
      option: function (theme) {
        var cells = {}, most = 0;
        types.forEach(function (type, y) {
          type.places.forEach(function (p) {
            var key = Math.floor(p[0] * columns / places) + ',' + y;
            if (!cells[key] || p[1] > cells[key][2]) cells[key] = [Math.floor(p[0] * columns / places), y, p[1], p[2]];
            most = Math.max(most, p[1]);
          });
        });
        var names = [];
        for (var x = 0; x < columns; ++x) names.push(String(Math.floor(x * places / columns)));
        return {
          animation: false,
          grid: {left: 8, right: 14, top: 38, bottom: 34, containLabel: true},
          xAxis: axis(theme, {type: 'category', data: names, name: 'node or leaf', nameLocation: 'middle', nameGap: 24}),
          yAxis: axis(theme, {type: 'category', data: types.map(function (t) { return words(t.name); }), inverse: true,
                              axisLabel: {color: theme.ink, fontSize: 12}}),
          visualMap: {min: 0, max: +(100 * Math.max(most, 0.001)).toPrecision(3), calculable: false, orient: 'horizontal',
                      right: 8, top: 0, itemHeight: 130, itemWidth: 12, text: [percent(most), '0'],
                      textStyle: {color: theme.muted}, inRange: {color: theme.heat}, dimension: 2},
          tooltip: tooltip(theme, {
            formatter: function (cell) {
              var type = types[cell.value[1]];
              return '<b>' + words(type.name) + '</b>' + row('node or leaf', names[cell.value[0]]) +
                     row('busy', cell.value[2].toFixed(2) + ' %') + row('bytes', mib(1048576 * cell.value[3])) +
                     row('each', (type.bytes_per_s / 1e9).toFixed(1) + ' GB/s');
            }
          }),
          series: [{type: 'heatmap', animation: false, emphasis: {disabled: true},
                    itemStyle: {borderColor: theme.paper, borderWidth: 1},
                    data: Object.keys(cells).map(function (key) {
                      var cell = cells[key];
                      return [cell[0], cell[1], +(100 * cell[2]).toFixed(3), cell[3]];
                    })}]
        };
      },
      table: function () {
        var rows = [];
        types.forEach(function (type) {
          type.places.forEach(function (p) { rows.push([type.name, p[0], +(100 * p[1]).toFixed(3), p[2]]); });
        });
        return {head: ['links', 'node or leaf', 'busiest (% of the step)', 'MiB'], rows: rows};
      }
    };
  }

  /// Of each type of link the node, or leaf, whose links are busiest.
  function links_table(fabric) {
    return {
      id: 'links', title: 'The busiest links of a step',
      head: ['links', 'each', 'of the step', 'at node or leaf', 'bytes of its links', 'of the step, where least'],
      rows: fabric.types.filter(function (t) { return t.places.length; }).map(function (type) {
        var busiest = type.places.reduce(function (a, b) { return b[1] > a[1] ? b : a; });
        var least = type.places.reduce(function (a, b) { return b[1] < a[1] ? b : a; });
        return [words(type.name), (type.bytes_per_s / 1e9).toFixed(1) + ' GB/s', percent(busiest[1]), busiest[0],
                mib(1048576 * busiest[2]), percent(least[1])];
      })
    };
  }

  // -- hosts ------------------------------------------------------------------------------------------------------------

  function host_figure(data) {
    var c = clock(data.step.length_ns);
    var stages = data.stages.filter(function (stage) {
      return sums(stage.memory.pinned_kib).concat(sums(stage.memory.pageable_kib)).some(function (v) { return v > 0; });
    });
    if (!stages.length) return null;
    return {
      id: 'host-memory', title: 'Memory on the host',
      caption: 'Of one rank of each stage: pinned in PyTorch’s powers of two, and pageable.',
      height: 280,
      option: function (theme) {
        var series = [];
        stages.forEach(function (stage, at) {
          var times = sums(stage.memory.time_ns);
          [['pinned', 'pinned_kib', 'solid'], ['pageable', 'pageable_kib', 'dashed']].forEach(function (kind) {
            var values = sums(stage.memory[kind[1]]);
            if (!values.some(function (v) { return v > 0; })) return;
            series.push({name: 'rank ' + stage.memory.rank + ', ' + kind[0], type: 'line', step: 'end', symbol: 'none',
                         color: slot_colours[at % slot_colours.length], lineStyle: {width: 1.5, type: kind[2]},
                         animation: false,
                         data: values.map(function (v, i) { return [times[i] / c.scale, v / 1048576]; })});
          });
        });
        return {
          animation: false,
          grid: {left: 48, right: 14, top: 36, bottom: 64},
          legend: legend(theme, series.map(function (s) { return s.name; }), {icon: 'roundRect', itemHeight: 3}),
          xAxis: time_axis(theme, c, data.step.length_ns / c.scale, {}),
          yAxis: axis(theme, {type: 'value'}),
          dataZoom: zoom(theme, 0, 'none'),
          tooltip: tooltip(theme, {trigger: 'axis', valueFormatter: function (v) { return v.toFixed(2) + ' GiB'; }}),
          series: series
        };
      }
    };
  }

  // -- documents ----------------------------------------------------------------------------------------------------

  function stage_table(data) {
    var p = data.prediction;
    return {
      id: 'stages', title: 'By pipeline stage, the fullest of its ranks',
      head: ['stage', 'ranks', 'allocated', 'reserved', 'device', 'up to', 'to spare', 'peak of allocated at'],
      rows: data.stages.map(function (stage) {
        var of_stage = p.groups.filter(function (g) { return g.coordinates.pp === stage.stage; });
        var g = of_stage.filter(function (group) { return parseInt(group.ranks, 10) === stage.memory.rank; })[0];
        return [stage.stage, of_stage.reduce(function (sum, group) { return sum + group.rank_count; }, 0),
                gib(g.peak_allocated_bytes), gib(g.peak_reserved_bytes), gib(g.peak_device_bytes),
                gib(g.peak_device_upper_bytes),
                gib(p.capacity_bytes - p.headroom_bytes - g.peak_device_upper_bytes), instant(g.allocated_peak_at)];
      })
    };
  }
  function driver_table(group) {
    return {
      id: 'driver-memory', title: 'Behind the allocator, on rank ' + parseInt(group.ranks, 10),
      head: ['what', 'bytes', 'low', 'high', 'source'],
      rows: group.device_rows.map(function (r) { return [r.name, mib(r.bytes), mib(r.low), mib(r.high), r.source]; })
    };
  }
  function fullest(data) {
    return data.prediction.groups.reduce(function (a, b) {
      return b.peak_device_upper_bytes > a.peak_device_upper_bytes ? b : a;
    });
  }

  function prediction_document(data) {
    var p = data.prediction, top = fullest(data), sections = [];
    var document_ = {
      figures_of_merit: [
        [gib(top.peak_device_bytes), 'peak of the fullest device'],
        [gib(top.peak_device_upper_bytes), 'up to, of ' + gib(p.capacity_bytes)],
        [gib(top.peak_allocated_bytes), 'allocated in tensors'],
        [gib(top.peak_reserved_bytes), 'reserved by the allocator']
      ],
      sections: sections, assumptions: p.assumptions, not_modelled: p.not_modelled
    };
    if (p.step_time_s === null) return document_;
    document_.figures_of_merit.push([time(1e9 * p.step_time_s), 'a step'],
                                    [thousands(p.tokens_per_s_per_device), 'tokens/s per device'],
                                    [percent(p.mfu), 'MFU']);
    var many = data.stages.length > 4;
    sections.push({
      title: 'Memory over the step',
      text: 'GiB on the device, by what they are for, over step ' + data.step.number + ' of ' +
            (data.stages.length > 1 ? 'the fullest rank of each pipeline stage.' : 'the fullest rank.') +
            ' Moments stand where the device comes to them; the host thread, which asks for memory, is often ahead.' +
            ' Point at one to see what lives.' +
            (p.outcome === 'out_of_memory' ? ' Memory runs out: this is what would be needed, on devices without a limit.' : ''),
      figures: data.stages.map(function (stage, at) { return memory_figure(data, stage, at > 0); }),
      halves: many
    });
    sections.push({title: 'The peak', figures: [composition_figure(data)], tables: [stage_table(data), driver_table(top)]});
    sections.push({title: 'Time', figures: [schedule_figure(data), shares_figure(data)]});
    sections.push({title: 'All ranks', figures: [heat_figure(data)]});
    if (data.fabric.busiest.length)
      sections.push({title: 'The fabric', figures: [fabric_figure(data)], tables: [links_table(data.fabric)]});
    var host = host_figure(data);
    if (host) sections.push({title: 'Hosts', figures: [host]});
    return document_;
  }

  // -- several predictions --------------------------------------------------------------------------------------------

  /// What tells points of a plane apart, and what is said where one points at them.
  function scatter_figure(id, title, caption, lists, names, capacity) {
    return {
      id: id, title: title, caption: caption, height: 380,
      option: function (theme) {
        var xs = [].concat.apply(capacity ? [capacity / 1073741824] : [], lists.map(function (list) {
          return list.points.map(function (p) { return p.x; });
        }));
        var least = Math.min.apply(null, xs), most = Math.max.apply(null, xs);
        var series = lists.map(function (list) {
          return {name: list.name, type: list.line ? 'line' : 'scatter', color: colour_of(theme, list.colour),
                  symbolSize: list.size || 10, symbol: list.symbol || 'circle', step: false, animation: false,
                  lineStyle: {width: 1.5}, labelLayout: {hideOverlap: true},
                  label: {show: !!list.named, position: 'right', color: theme.ink,
                          formatter: function (p) { return list.points[p.dataIndex].name; }},
                  data: list.points.map(function (p) {
                    return {value: [p.x, p.y], said: p.said, label: {position: p.x > (least + most) / 2 ? 'left' : 'right'}};
                  })};
        });
        if (capacity && series.length) series[0].markLine = capacity_line(theme, capacity, true, 'end');
        return {
          animation: false,
          grid: {left: 64, right: 30, top: 44, bottom: 44},
          legend: legend(theme, lists.map(function (list) { return list.name; })),
          xAxis: axis(theme, {type: 'value', scale: true, name: names[0], nameLocation: 'middle', nameGap: 26}),
          yAxis: axis(theme, {type: 'value', scale: true, name: names[1], nameLocation: 'middle', nameGap: 48}),
          dataZoom: [{type: 'inside', xAxisIndex: 0, filterMode: 'none', zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false},
                     {type: 'inside', yAxisIndex: 0, filterMode: 'none', zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false}],
          tooltip: tooltip(theme, {formatter: function (shown) { return shown.data.said || ''; }}),
          series: series
        };
      },
      table: function () {
        var rows = [];
        lists.forEach(function (list) {
          list.points.forEach(function (p) { rows.push([list.name, p.name, p.x, p.y]); });
        });
        return {head: ['list', 'which', names[0], names[1]], rows: rows};
      }
    };
  }

  function beside_document(data) {
    var reports = data.reports, tops = reports.map(fullest);
    var as_one = {categories: reports[0].categories, prediction: {
      capacity_bytes: Math.max.apply(null, reports.map(function (r) { return r.prediction.capacity_bytes; })),
      groups: tops.map(function (top, i) {
        return {ranks: reports[i].title, at_peak: top.at_peak, peak_device_upper_bytes: top.peak_device_upper_bytes,
                peak_device_bytes: top.peak_device_bytes, peak_at: top.peak_at, title: reports[i].title};
      })
    }};
    var timed = reports.filter(function (r) { return r.prediction.step_time_s !== null; });
    var sections = [{
      title: 'Side by side',
      tables: [{
        id: 'scenarios', title: 'The fullest rank of each',
        head: ['scenario', 'fits', 'allocated', 'reserved', 'device', 'up to', 'capacity', 'step', 'tokens/s', 'MFU'],
        rows: reports.map(function (r, i) {
          var p = r.prediction, top = tops[i], has = p.step_time_s !== null;
          return [r.title, r.answer ? 'yes' : 'no', gib(top.peak_allocated_bytes), gib(top.peak_reserved_bytes),
                  gib(top.peak_device_bytes), gib(top.peak_device_upper_bytes), gib(p.capacity_bytes),
                  has ? time(1e9 * p.step_time_s) : '', has ? thousands(p.tokens_per_s_per_device) : '',
                  has ? percent(p.mfu) : ''];
        })
      }],
      figures: [composition_figure(as_one), scatter_figure(
        'scenarios-plane', 'Memory and throughput', 'Upper ends of the fullest rank’s memory.',
        [{name: 'scenarios', colour: 'accent', size: 13, named: true, points: timed.map(function (r) {
          var upper = fullest(r).peak_device_upper_bytes, speed = r.prediction.tokens_per_s_per_device;
          return {x: +(upper / 1073741824).toFixed(3), y: +speed.toFixed(1), name: r.title,
                  said: '<b>' + escaped(r.title) + '</b>' + row('up to', gib(upper)) + row('tokens/s', thousands(speed))};
        })}], ['GiB of the fullest device, up to', 'tokens/s per device'], as_one.prediction.capacity_bytes)]
    }, {
      title: 'Memory over the step', text: 'GiB on the fullest rank’s device, by what they are for.',
      figures: timed.map(function (r, i) {
        var figure = memory_figure(r, r.stages[0], i > 0);
        figure.id = 'memory-' + i;
        figure.title = r.title + ', ' + figure.title;
        return figure;
      })
    }];
    var assumptions = [], not_modelled = [];
    reports.forEach(function (r) {
      r.prediction.assumptions.forEach(function (a) { if (assumptions.indexOf(a) < 0) assumptions.push(a); });
      r.prediction.not_modelled.forEach(function (a) { if (not_modelled.indexOf(a) < 0) not_modelled.push(a); });
    });
    return {figures_of_merit: [], sections: sections, assumptions: assumptions, not_modelled: not_modelled};
  }

  // -- searches -----------------------------------------------------------------------------------------------------

  function short_name(axis_name) { return axis_name.replace(/^.*\./, ''); }
  function layout_said(layout, names) {
    return names.map(function (name) { return row(escaped(short_name(name)), escaped(layout[name])); }).join('');
  }
  function plan_document(data) {
    var plan = data.record, capacity = plan.capacity_bytes;
    var telling = plan.axes.filter(function (a) { return a.values.length > 1; }).map(function (a) { return a.name; });
    function found(list) {
      return list.map(function (f) {
        return {x: +(f.peak_device_upper_bytes / 1073741824).toFixed(3), y: +f.tokens_per_s_per_device.toFixed(1),
                name: '#' + f.candidate,
                said: '<b>#' + f.candidate + '</b>' + row('tokens/s', thousands(f.tokens_per_s_per_device)) +
                      row('step', time(1e9 * f.step_time_s)) + row('up to', gib(f.peak_device_upper_bytes)) +
                      row('allocated', gib(f.peak_allocated_bytes)) + layout_said(f.layout, telling)};
      });
    }
    var misses = plan.near_misses.filter(function (m) { return capacity && m.tokens_per_s_per_device !== null; });
    var lists = [
      {name: 'front: less memory only for less throughput', colour: 'accent', line: true, size: 8, points: found(plan.front)},
      {name: 'best', colour: '#2a8f83', size: 13, points: found(plan.best)},
      {name: 'near misses', colour: 'no', symbol: 'diamond', points: misses.map(function (m) {
        return {x: +((capacity + m.lacks_bytes) / 1073741824).toFixed(3), y: +m.tokens_per_s_per_device.toFixed(1),
                name: '#' + m.candidate,
                said: '<b>#' + m.candidate + ' does not fit</b>' +
                      (m.lacks_bytes > 0 ? row('the fullest device lacks', (m.exact ? '' : 'at least ') + gib(m.lacks_bytes)) : '') +
                      (m.host_lacks_bytes > 0 ? row('the fullest host lacks', gib(m.host_lacks_bytes)) : '') +
                      (m.straddles ? row('fits at central estimates', 'yes') : '') +
                      row('tokens/s', (m.exact ? '' : 'at most ') + thousands(m.tokens_per_s_per_device)) +
                      layout_said(m.layout, telling)};
      })}
    ].filter(function (list) { return list.points.length; });
    var fates = [
      ['bounds of memory say that it does not fit', plan.tiers.bounded_rejected],
      ['the emulated allocator says that it does not fit', plan.tiers.allocator_rejected],
      ['beaten in memory and throughput both', plan.tiers.beaten], ['fits, and ran on the simulated clock', plan.tiers.timed],
      ['cannot be judged', plan.tiers.failed]
    ].filter(function (fate) { return fate[1] > 0; });
    var dropped = plan.dropped.map(function (d) { return [d.reason, d.combinations]; });
    var on_front = {}, among_best = {};
    plan.front.forEach(function (f) { on_front[f.candidate] = true; });
    plan.best.forEach(function (f) { among_best[f.candidate] = true; });
    function found_table(id, title, list) {
      return {id: id, title: title,
              head: ['layout', 'tokens/s', 'step', 'device up to', 'allocated', 'on the front'].concat(telling.map(short_name)),
              rows: list.map(function (f) {
                return ['#' + f.candidate, thousands(f.tokens_per_s_per_device), time(1e9 * f.step_time_s),
                        gib(f.peak_device_upper_bytes), gib(f.peak_allocated_bytes), on_front[f.candidate] ? 'yes' : '']
                    .concat(telling.map(function (name) { return f.layout[name]; }));
              })};
    }
    var other_front = plan.front.filter(function (f) { return !among_best[f.candidate]; });
    var sections = [];
    if (lists.length)
      sections.push({title: 'Memory and throughput', figures: [scatter_figure(
        'pareto', 'Candidates', 'Upper ends of the fullest rank’s memory. Near misses stand at the capacity and what they ' +
                                'lack; point at them to see why not.',
        lists, ['GiB of the fullest device, up to', 'tokens/s per device'], capacity)]});
    if (plan.best.length)
      sections.push({title: 'Layouts', tables: [found_table('best', 'The best', plan.best)].concat(
        other_front.length ? [found_table('front', 'Others on the front: less memory for less throughput', other_front)] : [])});
    if (plan.near_misses.length)
      sections.push({title: 'Near misses', tables: [{
        id: 'near-misses', title: 'What lacks least', head: ['layout', 'lacks', 'tokens/s'].concat(telling.map(short_name)),
        rows: plan.near_misses.map(function (m) {
          return ['#' + m.candidate, (m.exact ? '' : 'at least ') + gib(Math.max(m.lacks_bytes, m.host_lacks_bytes)),
                  m.tokens_per_s_per_device === null ? 'not bounded'
                                                     : (m.exact ? '' : 'at most ') + thousands(m.tokens_per_s_per_device)]
              .concat(telling.map(function (name) { return m.layout[name]; }));
        })
      }]});
    sections.push({title: 'Why the others fall', figures: [bars_figure('fates', 'What became of candidates', fates)],
                   tables: dropped.length ? [{id: 'dropped', title: 'Combinations that are no candidates',
                                              head: ['reason', 'combinations'], rows: dropped}] : []});
    var best = plan.best[0];
    return {
      figures_of_merit: (best ? [[thousands(best.tokens_per_s_per_device), 'tokens/s per device'],
                                 [time(1e9 * best.step_time_s), 'a step'],
                                 [gib(best.peak_device_upper_bytes), 'up to' + (capacity ? ', of ' + gib(capacity) : '')]] : [])
                            .concat([[thousands(plan.candidates), 'candidates'], [thousands(plan.combinations), 'combinations']]),
      sections: sections, assumptions: plan.assumptions
    };
  }
  function bars_figure(id, title, pairs, unit) {
    return {
      id: id, title: title, caption: '', height: 50 + 30 * Math.max(1, pairs.length),
      option: function (theme) {
        return {
          animation: false,
          grid: {left: 8, right: 90, top: 6, bottom: 24, containLabel: true},
          xAxis: axis(theme, {type: 'value', name: unit || '', minInterval: 1}),
          yAxis: axis(theme, {type: 'category', inverse: true, data: pairs.map(function (p) { return p[0]; }),
                              axisLabel: {color: theme.ink, fontSize: 12}}),
          tooltip: tooltip(theme, {}),
          series: [{type: 'bar', color: '#5b8db8', barMaxWidth: 16, animation: false,
                    data: pairs.map(function (p) { return p[1]; }),
                    label: {show: true, position: 'right', color: theme.ink, formatter: function (bar) { return thousands(bar.value); }}}]
        };
      },
      table: function () { return {head: [title, 'number'], rows: pairs}; }
    };
  }

  function capacity_document(data) {
    var study = data.record, limits = study.limits, by = study.by, largest = short_name(study.largest);
    function by_name(limit) { return by ? String(limit[by]) : 'all'; }
    function frontier(id, title, unit, value, colour) {
      return {
        id: id, title: title, caption: 'At the largest value that fits, the best of all that the study tries.',
        height: 320,
        option: function (theme) {
          var values = limits.map(value), numbers = values.filter(function (v) { return v > 0; });
          var wide = numbers.length && Math.max.apply(null, numbers) > 30 * Math.min.apply(null, numbers);
          return {
            animation: false,
            grid: {left: 70, right: 20, top: 30, bottom: 56},
            xAxis: axis(theme, {type: 'category', data: limits.map(by_name), name: by ? short_name(by) : '', nameLocation: 'middle',
                                nameGap: 30, axisLabel: {color: theme.ink, interval: 0, overflow: 'truncate', width: 180}}),
            yAxis: axis(theme, {type: wide ? 'log' : 'value', name: unit, nameLocation: 'middle', nameGap: 54,
                                minInterval: numbers.every(function (v) { return v === Math.floor(v); }) ? 1 : 0}),
            tooltip: tooltip(theme, {trigger: 'axis', formatter: function (shown) {
              var l = limits[shown[0].dataIndex], out = '<b>' + escaped(by_name(l)) + '</b>';
              out += row(largest, l.largest === null ? 'none' : escaped(l.largest));
              if (l.candidate !== null)
                out += row('tokens/s', thousands(l.tokens_per_s_per_device)) + row('up to', gib(l.peak_device_upper_bytes)) +
                       row('with', escaped(l['with']));
              if (l.next_lacks_bytes !== null) out += row('the next larger lacks', gib(l.next_lacks_bytes));
              return out;
            }}),
            series: [{type: 'bar', color: colour, barMaxWidth: 60, animation: false, data: values,
                      label: {show: true, position: 'top', color: theme.ink,
                              formatter: function (bar) { return bar.value > 0 ? thousands(bar.value) : 'none'; }}}]
          };
        },
        table: function () { return {head: [by || 'all', unit], rows: limits.map(function (l) { return [by_name(l), value(l)]; })}; }
      };
    }
    // What is no number counts by its place among the values.
    var texts = study.axes.filter(function (a) { return a.name === study.largest; })[0].values;
    var numeric = texts.every(function (text) { return !isNaN(parseFloat(text)); });
    var figures = [frontier('frontier', 'The largest ' + largest, numeric ? largest : largest + ' (place among its values)',
                            function (l) { return l.largest === null ? 0 : numeric ? parseFloat(l.largest) : texts.indexOf(l.largest) + 1; },
                            '#2f5d8a'),
                   frontier('frontier-throughput', 'Throughput there', 'tokens/s per device', function (l) {
                     return +(l.tokens_per_s_per_device || 0).toFixed(1);
                   }, '#2a8f83')];
    return {
      figures_of_merit: [],
      sections: [{title: 'The frontier', figures: figures, tables: [{
        id: 'limits', title: 'How far it goes', head: [by ? short_name(by) : '', largest, 'tokens/s', 'device up to', 'the next lacks', 'with'],
        rows: limits.map(function (l) {
          return [by_name(l), l.largest === null ? 'none' : l.largest,
                  l.candidate === null ? '' : thousands(l.tokens_per_s_per_device),
                  l.candidate === null ? '' : gib(l.peak_device_upper_bytes),
                  l.next_lacks_bytes === null ? '' : gib(l.next_lacks_bytes), l['with'] || ''];
        })
      }]}],
      assumptions: study.assumptions
    };
  }

  // -- what was measured ------------------------------------------------------------------------------------------------

  function pair_figure(id, title, caption, x_name, x, predicted, measured) {
    return {
      id: id, title: title, caption: caption, height: 340,
      option: function (theme) {
        function line(name, colour, values, type) {
          return {name: name, type: 'line', step: 'end', symbol: 'none', color: colour, animation: false,
                  lineStyle: {width: 1.5, type: type},
                  data: values.map(function (bytes, i) { return [x[i], bytes / 1073741824]; })};
        }
        return {
          animation: false, grid: {left: 56, right: 14, top: 40, bottom: 64},
          legend: legend(theme, ['predicted', 'measured'], {icon: 'roundRect', itemHeight: 3}),
          xAxis: axis(theme, {type: 'value', name: x_name, nameLocation: 'middle', nameGap: 26, min: 'dataMin', max: 'dataMax'}),
          yAxis: axis(theme, {type: 'value', scale: true}),
          dataZoom: zoom(theme, 0, 'none'),
          tooltip: tooltip(theme, {trigger: 'axis', valueFormatter: function (v) { return v.toFixed(4) + ' GiB'; }}),
          series: [line('measured', '#d68d46', measured, 'solid'), line('predicted', '#2f5d8a', predicted, 'dashed')]
        };
      },
      table: function () {
        return {head: [x_name, 'predicted (B)', 'measured (B)'],
                rows: x.map(function (at, i) { return [at, predicted[i], measured[i]]; })};
      }
    };
  }
  function ranks_figure(id, title, ranks, predicted, measured) {
    return {
      id: id, title: title, caption: '', height: 300,
      option: function (theme) {
        function bars(name, colour, values) {
          return {name: name, type: 'bar', color: colour, barMaxWidth: 22, animation: false,
                  data: values.map(function (bytes) { return bytes / 1073741824; })};
        }
        return {
          animation: false, grid: {left: 56, right: 14, top: 40, bottom: 44},
          legend: legend(theme, ['predicted', 'measured']),
          xAxis: axis(theme, {type: 'category', data: ranks.map(String), name: 'rank', nameLocation: 'middle', nameGap: 26}),
          yAxis: axis(theme, {type: 'value', name: 'GiB', nameLocation: 'middle', nameGap: 40}),
          tooltip: tooltip(theme, {trigger: 'axis', valueFormatter: function (v) { return v.toFixed(4) + ' GiB'; }}),
          series: [bars('predicted', '#2f5d8a', predicted), bars('measured', '#d68d46', measured)]
        };
      },
      table: function () {
        return {head: ['rank', 'predicted (B)', 'measured (B)'],
                rows: ranks.map(function (rank, i) { return [rank, predicted[i], measured[i]]; })};
      }
    };
  }
  function error_text(pair) { return pair.error === null ? '' : (100 * pair.error).toFixed(3) + ' %'; }
  function pair_row(name, pair) {
    return [name, mib(pair.predicted_bytes), mib(pair.measured_bytes), error_text(pair)];
  }

  function comparison_document(data) {
    var c = data.record, head = ['what', 'predicted', 'measured', 'off by'];
    if (c.kind === 'log')
      return {figures_of_merit: [], sections: [{
        title: 'Reserved memory of ranks',
        figures: [ranks_figure('reserved', 'Reserved, predicted and logged', c.ranks.map(function (r) { return r.rank; }),
                               c.ranks.map(function (r) { return r.reserved.predicted_bytes; }),
                               c.ranks.map(function (r) { return r.reserved.measured_bytes; }))],
        tables: [{id: 'ranks', title: 'Rank by rank', head: head, rows: c.ranks.reduce(function (rows, r) {
          if (r.allocated) rows.push(pair_row('rank ' + r.rank + ', allocated', r.allocated));
          return rows.concat([pair_row('rank ' + r.rank + ', reserved', r.reserved)]);
        }, [])}]
      }]};
    function unmatched(id, title, list) {
      return {id: id, title: title, head: ['what', 'tensors', 'requested', 'in blocks'], rows: list.slice(0, 40).map(function (u) {
        return [u.what, u.count, mib(u.requested_bytes), mib(u.block_bytes)];
      })};
    }
    var tables = [{id: 'peaks', title: 'Peaks of rank ' + c.rank, head: head, rows: [
      pair_row('allocated', c.allocated), pair_row('allocated as the step begins', c.allocated_at_begin), pair_row('reserved', c.reserved)
    ]}];
    if (c.only_predicted.length) tables.push(unmatched('only-predicted', 'At the peak in the prediction alone', c.only_predicted));
    if (c.only_measured.length) tables.push(unmatched('only-measured', 'At the peak in the measurement alone', c.only_measured));
    return {
      figures_of_merit: [[gib(c.allocated.predicted_bytes), 'allocated, predicted'],
                         [gib(c.allocated.measured_bytes), 'allocated, measured'],
                         [gib(c.reserved.predicted_bytes), 'reserved, predicted'],
                         [gib(c.reserved.measured_bytes), 'reserved, measured']],
      sections: [{title: 'Allocated over the step', figures: [pair_figure(
        'curve', 'Predicted and measured', 'GiB allocated on rank ' + c.rank + ', at equal parts of the step’s events.', 'part of the step',
        c.curve.map(function (p, i) { return i; }), c.curve.map(function (p) { return p[0]; }), c.curve.map(function (p) { return p[1]; }))]},
                 {title: 'The peak', tables: tables}]
    };
  }

  function validation_document(data) {
    var v = data.record, ranks = v.ranks, worst = ranks.reduce(function (a, b) {
      return b.largest_difference_bytes > a.largest_difference_bytes ? b : a;
    });
    var sections = [{
      title: 'Peaks of all ranks', text: 'On ' + v.machine + ', back end ' + v.back_end + ', sizes divided by ' + v.scale + '.',
      figures: [ranks_figure('peaks', 'Resident memory at the peak', ranks.map(function (r) { return r.rank; }),
                             ranks.map(function (r) { return r.predicted_peak_bytes; }),
                             ranks.map(function (r) { return r.measured_peak_bytes; }))],
      tables: [{id: 'ranks', title: 'Rank by rank', head: ['rank', 'host', 'agrees', 'predicted', 'measured', 'largest difference', 'of the peak'],
                rows: ranks.map(function (r) {
                  return [r.rank, r.host, r.agrees ? 'yes' : 'no', mib(r.predicted_peak_bytes), mib(r.measured_peak_bytes),
                          mib(r.largest_difference_bytes), percent(r.difference_over_peak)];
                })}]
    }];
    if (worst.samples.length)
      sections.push({title: 'The rank that is furthest off', figures: [pair_figure(
        'samples', 'Resident memory of rank ' + worst.rank, 'GiB at the ops at which it was read.', 'op of its program',
        worst.samples.map(function (s) { return s.op; }), worst.samples.map(function (s) { return s.predicted_bytes; }),
        worst.samples.map(function (s) { return s.measured_bytes; }))]});
    return {figures_of_merit: [], sections: sections};
  }

  var documents = {prediction: prediction_document, beside: beside_document, plan: plan_document, capacity: capacity_document,
                   comparison: comparison_document, validation: validation_document};
  /// Where nothing draws text: as wide as it is in DejaVu Sans, the widest of usual sans-serif fonts (its digits take
  /// 0.636 em, its spaces 0.318).
  function measured_text(text, font) {
    var size = parseFloat((/([0-9.]+)px/.exec(font) || [0, 12])[1]), spaces = text.split(' ').length - 1;
    return {width: size * (0.636 * (text.length - spaces) + 0.318 * spaces)};
  }

  return {
    themes: themes,
    /// All that a report shows beside its verdict.
    document: function (data) { return documents[data.kind](data); },
    /// {head, rows} as CSV.
    csv: function (table) {
      return [table.head].concat(table.rows).map(function (cells) {
        return cells.map(function (cell) {
          var text = String(cell);
          return /[",\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
        }).join(',');
      }).join('\n') + '\n';
    },
    /// Every figure as SVG and CSV, every table as CSV and Markdown: handed to `put` as name and text.
    write: function (data, echarts, put) {
      var self = this;
      echarts.setPlatformAPI({measureText: measured_text});
      this.document(data).sections.forEach(function (section) {
        (section.figures || []).forEach(function (figure) {
          var chart = echarts.init(null, null, {renderer: 'svg', ssr: true, width: 900, height: figure.height});
          chart.setOption(self.on_paper(figure.option(themes.light, figure.range, 400)));
          put(figure.id + '.svg', self.svg(chart));
          chart.dispose();
          if (figure.table) put(figure.id + '.csv', self.csv(figure.table()));
        });
        (section.tables || []).forEach(function (table) {
          put(table.id + '.csv', self.csv(table));
          put(table.id + '.md', self.markdown(table));
        });
      });
    },
    /// Programs other than browsers know no dominant-baseline: letters of usual fonts reach 0.7 em above theirs.
    svg: function (chart) {
      return chart.renderToSVGString().replace(/dominant-baseline="central"/g, 'dy="0.35em"');
    },
    /// Without what only helps a pointer.
    on_paper: function (option) {
      option.backgroundColor = '#ffffff';
      option.dataZoom = [];
      return option;
    },
    markdown: function (table) {
      function line(cells) {
        return '| ' + cells.map(function (cell) { return String(cell).replace(/\|/g, '\\|'); }).join(' | ') + ' |\n';
      }
      return line(table.head) + '|' + table.head.map(function () { return '---|'; }).join('') + '\n' +
             table.rows.map(line).join('');
    }
  };
})();
