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
    var group = data.prediction.groups.filter(function (g) { return g.ranks[0] === memory.rank; })[0];
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
        var head = ['time (ns)', 'phase', 'micro-batch', 'operator'], used = [];
        its.columns.forEach(function (column, k) {
          if (!column.some(function (gib_) { return gib_ > 0; })) return;
          head.push(data.categories[k] + ' (GiB)');
          used.push(column);
        });
        return {head: head, rows: its.times.map(function (ns, i) {
          var cells = [ns, data.phases[memory.phase[i]], memory.micro_batch[i] < 0 ? '' : memory.micro_batch[i],
                       memory.places[memory.place[i]]];
          for (var k = 0; k < used.length; ++k) cells.push(Math.round(1e4 * used[k][i]) / 1e4);
          return cells;
        })};
      }
    };
  }

  // -- what peaks are made of -----------------------------------------------------------------------------------------

  function group_name(group) {
    if (group.title) return group.title;
    var at = group.coordinates, parts = ['pp', 'dp', 'cp', 'ep', 'tp'].filter(function (axis_) { return at[axis_] > 0; });
    return 'rank ' + group.ranks[0] + (parts.length ? ' (' + parts.map(function (axis_) {
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
                  return [g.rank_list, g.peak_device_bytes, g.peak_device_upper_bytes].concat(used.map(function (n) {
                    return g.at_peak[n];
                  }));
                })};
      }
    };
  }

