{{- define "operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := include "operator.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "operator.selector" -}}
app.kubernetes.io/name: {{ include "operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "operator.labels" -}}
{{- with .Values.commonLabels }}
{{- toYaml . }}
{{ end -}}
{{ include "operator.selector" . }}
app.kubernetes.io/part-of: trellis
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "operator.image" -}}
{{- with .Values.manager.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What the program is told; a flag that `manager.args` has is not given twice. */}}
{{- define "operator.args" -}}
{{- $args := list }}
{{- if and .Values.leaderElection.enable (not (has "--leader-elect" .Values.manager.args)) }}
{{- $args = append $args "--leader-elect" }}
{{- end }}
{{- $name := include "operator.fullname" . }}
{{- if ne $name "trellis-operator" }}
{{- $args = append $args (printf "--lease-name=%s" $name) }}
{{- end }}
{{- if .Values.metrics.enable }}
{{- $args = append $args (printf "--metrics-address=0.0.0.0:%d" (int .Values.metrics.port)) }}
{{- end }}
{{- $args = append $args "--health-address=0.0.0.0:8081" }}
{{- range .Values.watchNamespaces }}
{{- $args = append $args (printf "--namespace=%s" .) }}
{{- end }}
{{- if .Values.podPolicy.allowPrivileged }}
{{- $args = append $args "--allow-privileged-pods" }}
{{- end }}
{{- range .Values.podPolicy.serviceAccounts }}
{{- $args = append $args (printf "--allow-service-account=%s" .) }}
{{- end }}
{{- with .Values.manager.workers }}
{{- $args = append $args (printf "--workers=%d" (int .)) }}
{{- end }}
{{- $args = append $args (printf "--log-level=%s" .Values.manager.logLevel) }}
{{- $args = append $args (printf "--log-format=%s" .Values.manager.logFormat) }}
{{- toYaml (concat $args .Values.manager.args) }}
{{- end }}
