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

